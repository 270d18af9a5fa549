// Tests lists of layers in Lua, as nn.sequential takes them.
#include "lua/layer_list.h"

#include "nn/lua/nn_script.h"

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

}  // namespace
}  // namespace zt::nn
