// Tests lists of layers in Lua: nn.sequential, and the option `mlp` of nn.gpt.
#include "lua/layer_list.h"

#include "layers/layers.h"
#include "nn/lua/nn_script.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

// Scripts also have keep(model), which passes a model to the test; `embedding`, a layer; and norm(), which makes one.
class LayerListTest : public test::NnScript {
 protected:
  void SetUp() override {
    NnScript::SetUp();
    set<keep>("keep");
    ASSERT_EQ(run("embedding = nn.embedding{vocab = 3, hidden = 2}"), "");
    ASSERT_EQ(run("function norm() return nn.rmsnorm{hidden = 2} end"), "");
  }
  void TearDown() override {
    kept.reset();
    NnScript::TearDown();
  }

  // Returns the names of the positions of a model that `code` makes.
  std::vector<std::string> names(const std::string& code) {
    EXPECT_EQ(run("keep(" + code + ")"), "");
    std::vector<std::string> all;
    for (const PositionInfo& info : kept->info().positions) all.push_back(info.name);
    return all;
  }

  void expect_error(const std::string& code, const std::string& part) {
    const std::string message = run(code);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }

  static int keep(lua_State* state) {
    kept = lua::check<Model>(state, 1);
    return 0;
  }
  static inline std::shared_ptr<Model> kept;
};

using Names = std::vector<std::string>;

// --- nn.sequential ---

TEST_F(LayerListTest, NamesLayersByTheirEntries) {
  EXPECT_EQ(names("nn.sequential{embedding, {'head', nn.lm_loss{vocab = 3, hidden = 2}}, seed = 3}"), (Names{"0", "head"}));
  EXPECT_EQ(kept->seed(), 3U);
  EXPECT_EQ(names("nn.sequential{embedding, {'moe', {norm(), {'deep', {norm(), {'last', norm()}}}}}, norm()}"),
            (Names{"0", "moe.0", "moe.deep.0", "moe.deep.last", "2"}));
  EXPECT_EQ(names("nn.sequential{embedding, {norm(), {'b', norm()}, {norm()}}}"), (Names{"0", "1.0", "1.b", "1.2.0"}));
}

TEST_F(LayerListTest, ALayerInTwoListsIsUsedTwice) {
  EXPECT_EQ(names("(function() local n = norm() return nn.sequential{embedding, {'a', {n}}, {'b', {n}}} end)()"),
            (Names{"0", "a.0", "a.0"}));
}

TEST_F(LayerListTest, SequentialRefusesOtherEntries) {
  expect_error("nn.sequential{embedding, sede = 3}", "did you mean 'seed'?");
  expect_error("nn.sequential(3)", "takes a table of layers");
  expect_error(
      "nn.sequential{{'a'}}",
      "nn.sequential: entry 1 must be a layer or {\"name\", layer}, where a list of such entries may stand for the layer; "
      "got a list of 1 that begins with a string");
  expect_error("nn.sequential{embedding, 'a'}", "entry 2 must be a layer or {\"name\", layer}");
  expect_error("nn.sequential{embedding, {norm(), {}}}", "entry 2[2] must be a layer");
  expect_error("nn.sequential{embedding, {norm(), {}}}", "got an empty table");
  expect_error("nn.sequential{embedding, {'a', {norm(), {'b', {norm(), 7}}}}}", "entry 2[2][2][2][2] must be a layer");
  expect_error("nn.sequential{embedding, {norm(), 'a'}}", "entry 2[2] must be a layer or {\"name\", layer}");
  expect_error("nn.sequential{embedding, {'a', 'b'}}",
               "entry 2[2], after the name 'a', must be a layer or a list of entries, got a string");
  expect_error("nn.sequential{embedding, {'a', {'b', norm()}}}", "entry 2[2], after the name 'a', must be a layer or a list");
  expect_error("nn.sequential{embedding, {'', norm()}}", "entry 2 has an empty name");
  expect_error("nn.sequential{embedding, {hidden = 2}}", "entry 2 must be a layer");
  expect_error("nn.sequential{embedding, {norm(), name = 'a'}}", "entry 2: ");
}

// --- nn.gpt{mlp = function} ---

constexpr const char* kOptions = "layers = 3, hidden = 4, heads = 2, vocab = 5, seq = 3";

std::string gpt(const std::string& function) {
  return "nn.gpt{" + std::string(kOptions) + ", mlp = " + function + "}";
}

TEST_F(LayerListTest, AGptHasTheLayersOfItsFunction) {
  EXPECT_EQ(names(gpt("function(i) if i == 1 then return {{'mlp', nn.mlp{hidden = 4, ffn = 6}}, nn.dropout{p = 0}} end end")),
            (Names{"embedding", "blocks.0", "blocks.1", "blocks.1.mlp", "blocks.1.1", "blocks.1.add", "blocks.2", "head"}));
  const auto& positions = kept->info().positions;
  EXPECT_EQ(positions[1].kind, "block");
  EXPECT_EQ(positions[2].kind, "attention_block");
  EXPECT_EQ(positions[5].kind, "residual");
  EXPECT_EQ(positions[5].inputs, (std::vector<Edge>{{4, 0}, {2, 1}}));
}

TEST_F(LayerListTest, TheFunctionIsCalledOncePerBlockInOrder) {
  EXPECT_EQ(run("calls = ''"), "");
  names(gpt("function(i, more) assert(more == nil) calls = calls .. i return nil end"));
  EXPECT_EQ(run("assert(calls == '012')"), "");
}

TEST_F(LayerListTest, ErrorsNameTheBlockAndThePlace) {
  const auto about = [](int block) { return fmt::format("nn.gpt: the function 'mlp' at test:2, for block {}: ", block); };
  const auto expect_refused = [&](const std::string& function, int block, const std::string& part) {
    expect_error("\n" + gpt(function), about(block) + part);
  };
  expect_refused("function(i) if i == 2 then error('no way') end end", 2, "no way");
  expect_refused("function(i) return nn.mlp{hidden = 4} end", 0, "");
  expect_error(gpt("function(i) return nn.mlp{hidden = 4} end"), "option 'ffn' is missing");
  expect_refused("function(i) return nn.mlp{hidden = 4, ffn = 2} end", 0,
                 "it returned a Layer: return nil for an ordinary MLP, or a list of layers, such as {{\"mlp\", nn.mlp{...}}}");
  expect_refused("function(i) return 3 end", 0, "it returned an integer: return nil");
  expect_refused("function(i) return false end", 0, "it returned a boolean: return nil");
  expect_refused("function(i) return {} end", 0, "it returned a table: return nil");
  expect_refused("function(i) if i == 1 then return {nn.dropout{p = 0}, 'x'} end end", 1, "entry 2 must be a layer");
  expect_refused("function(i) return {nn.attention_block{hidden = 4, heads = 2}, nn.mlp{hidden = 4, ffn = 2}} end", 0,
                 "its layer '0' (attention_block) outputs 'residual'");
  expect_refused("function(i) return {nn.layer{io = {outputs = {'y'}}, forward = function(self, h) return h end}} end", 0,
                 "its last layer '0' (lua) does not output 'h'");
  expect_error(gpt("3"), "nn.gpt.mlp must be a function");
}

// The same arithmetic in several layers: only the sum with the residual stream is rounded in another place.
TEST_F(LayerListTest, AGptOfSeveralLayersEqualsTheOrdinaryOne) {
  const std::vector<std::pair<std::string, std::string>> families{
      {"family = 'gpt2'", "nn.mlp{hidden = 12, ffn = 48, std = 0.3, residual_std = 0.3 / math.sqrt(4)}"},
      {"family = 'llama', ffn = 20, kv_heads = 1, qk_norm = true",
       "nn.mlp{hidden = 12, ffn = 20, activation = 'swiglu', bias = false, std = 0.3, residual_std = 0.3}"},
      {"family = 'gpt2', norm = 'none'", "nn.mlp{hidden = 12, ffn = 48, std = 0.3, residual_std = 0.3 / math.sqrt(4)}"}};
  for (const auto& [family, mlp] : families) {
    const std::string options = "layers = 2, hidden = 12, heads = 3, vocab = 11, seq = 5, std = 0.3, " + family;
    const auto result = [&](const std::string& more) {
      EXPECT_EQ(run("keep(nn.gpt{" + options + more + "})"), "");
      const test::Subject subject = test::subject(kept);
      test::initialise(subject, 3, at::kDouble);
      test::FakeContext context;
      context.fields["tokens"] = (at::arange(10, at::kLong) * 5).remainder(11).view({2, 5});
      context.fields["labels"] = (at::arange(10, at::kLong) * 7).remainder(11).view({2, 5});
      return test::run(subject, {}, context);
    };
    const test::Result wanted = result(""), got = result(", mlp = function(i) return {{'mlp', " + mlp + "}} end");
    EXPECT_EQ(kept->info().positions.size(), 8U);
    EXPECT_LE(test::distance(got.loss, wanted.loss), 1e-12) << family;
    EXPECT_EQ(got.grads.size(), wanted.grads.size()) << family;
    for (const auto& [name, gradient] : wanted.grads) EXPECT_LE(test::distance(got.grads.at(name), gradient), 1e-12) << name;
  }
}

}  // namespace
}  // namespace zt::nn
