// Tests layers written in Lua.
#include "lua/lua_layer.h"

#include "nn/lua/nn_script.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

// Scripts also have the globals `w`, a tensor [3, 3], and keep(layer), which passes a layer to the test.
class LuaLayerTest : public test::NnScript {
 protected:
  void SetUp() override {
    NnScript::SetUp();
    lua_pushstring(L, "w");
    lua::push(L, (at::arange(9, at::kDouble) / 9).view({3, 3}));
    lua_rawset(L, LUA_GLOBALSINDEX);
    set<keep>("keep");
  }
  void TearDown() override {
    kept.reset();
    NnScript::TearDown();
  }

  test::Subject made(const std::string& code) {
    EXPECT_EQ(run(code), "");
    return test::initialised(kept);
  }

  std::string error_of(const test::Subject& subject) {
    try {
      subject.forward({x}, context);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  static int keep(lua_State* state) {
    kept = lua::check<Layer>(state, 1);
    return 0;
  }
  static inline std::shared_ptr<Layer> kept;
  const at::Tensor x = at::linspace(-1, 1, 6, at::kDouble).view({2, 3});
  test::FakeContext context;
};

TEST_F(LuaLayerTest, ForwardAndGradient) {
  const auto subject =
      made("keep(nn.layer{params = {w = w}, forward = function(self, x) return x * x:matmul(self.w):sigmoid() end})");
  const at::Tensor w = (at::arange(9, at::kDouble) / 9).view({3, 3});
  EXPECT_LE(test::distance(subject.forward({x}, context)[0], x * x.matmul(w).sigmoid()), 1e-15);
  EXPECT_LT(test::gradient_error(subject, {x}, context), 1e-8);
  EXPECT_TRUE(subject.params[0]->is_matrix);
}

TEST_F(LuaLayerTest, ContextGivesBatchAndLoss) {
  const auto subject = made(R"(keep(nn.layer{io = {inputs = {"h"}, outputs = {}, losses = {mse = "sample"}},
                                           forward = function(self, h, ctx)
    assert(ctx.mode == "train" and ctx.step == 0 and ctx.position == 0 and ctx.recompute == false)
    assert(ctx:has_batch("y") and not ctx:has_batch("z"))
    ctx:loss("mse", (h - ctx:batch("y")):pow(2):sum(), "sample")
  end}))");
  context.fields["y"] = at::ones({2, 3}, at::kDouble);
  EXPECT_EQ(kept->io().losses, (std::vector<LossInfo>{{"mse", Per::sample}}));
  EXPECT_TRUE(subject.forward({x}, context).empty());
  ASSERT_EQ(context.losses.size(), 1U);
  EXPECT_EQ(context.losses[0].name, "mse");
  EXPECT_EQ(context.losses[0].per, Per::sample);
  EXPECT_DOUBLE_EQ(context.losses[0].sum.item<double>(), (x - 1).pow(2).sum().item<double>());
}

TEST_F(LuaLayerTest, SeveralOutputs) {
  const auto subject =
      made(R"(keep(nn.layer{io = {inputs = {"a", "b"}, outputs = {"sum", {name = "aux", differentiable = false}}},
    forward = function(self, a, b) return a + b end}))");
  const auto out = subject.forward({x, x}, context);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_TRUE(at::equal(out[0], x + x));
  EXPECT_FALSE(out[1].defined());
  EXPECT_FALSE(kept->io().outputs[1].differentiable);
}

TEST_F(LuaLayerTest, DropoutDoesNotDependOnTheBatch) {
  const auto subject = made("keep(nn.layer{forward = function(self, x, ctx) return ctx:dropout(ctx:dropout(x, 0.4), 0.4) end})");
  const at::Tensor wide = at::ones({2, 400}, at::kDouble);
  const at::Tensor whole = subject.forward({wide}, context)[0];
  context.sample = 1;
  EXPECT_TRUE(at::equal(subject.forward({wide.narrow(0, 1, 1)}, context)[0][0], whole[1]));
  // The two masks are independent, so a fraction of 0.36 of the 800 elements stays. Its standard deviation is sqrt(0.36 * 0.64 /
  // 800) = 0.017.
  EXPECT_NEAR(whole.ne(0).to(at::kDouble).mean().item<double>(), 0.36, 5 * 0.017);
}

TEST_F(LuaLayerTest, DrawingWithoutAGeneratorIsRefused) {
  ASSERT_EQ(run("zt = require 'zt.core'"), "");
  const auto draws = made("keep(nn.layer{forward = function(self, x) return x + zt.rand({3}) end})");
  EXPECT_NE(test::misuse_of([&] { draws.forward({x}, context); }).find("use ctx:dropout"), std::string::npos);
  EXPECT_EQ(run("zt.rand({3})"), "");  // allowed outside of layers, also after the error
  const auto keyed = made("keep(nn.layer{forward = function(self, x) return x:bernoulli({generator = zt.generator(3)}) end})");
  EXPECT_EQ(keyed.forward({x.abs()}, context)[0].sizes(), x.sizes());
}

TEST_F(LuaLayerTest, CountsTokens) {
  const auto counting = made(R"(keep(nn.layer{forward = function(self, x) return x end, count = function(batch)
    assert(batch("none") == nil)
    return batch("labels"):ge(0):sum():item()
  end}))");
  const auto field = [](const std::string& name) { return name == "labels" ? at::arange(-2, 5) : at::Tensor(); };
  EXPECT_EQ(kept->count(field).tokens, 5);
  made("keep(nn.layer{forward = function(self, x) return x end, count = function(batch) return 'many' end, kind = 'odd'})");
  EXPECT_NE(test::misuse_of([&] { kept->count(field); }).find("the count of a 'odd' layer must return"), std::string::npos);
  made("keep(nn.layer{forward = function(self, x) return x end})");
  EXPECT_EQ(kept->count(field).tokens, 0);
}

TEST_F(LuaLayerTest, ErrorsInTheForwardLeaveTheStackAlone) {
  const auto fails = made("keep(nn.layer{forward = function(self, x) error('no way') end})");
  const int top = lua_gettop(L);
  try {
    fails.forward({x}, context);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no way"), std::string::npos) << error.what();
  }
  EXPECT_EQ(lua_gettop(L), top);
  const auto returns_nothing = made("keep(nn.layer{forward = function(self, x) end, kind = 'gate'})");
  EXPECT_NE(
      test::misuse_of([&] { returns_nothing.forward({x}, context); }).find("a 'gate' layer returned nil for its output 'h'"),
      std::string::npos);
  EXPECT_EQ(lua_gettop(L), top);
}

// `return x:matmul(x)` is a tail call, so Lua's traceback has no line of the forward.
TEST_F(LuaLayerTest, ErrorsInTheForwardNameItsPlace) {
  const auto fails = made("\nkeep(nn.layer{params = {w = w},\n forward = function(self, x) return x:matmul(x) end})");
  const std::string message = error_of(fails);
  EXPECT_TRUE(message.starts_with("in its function at test:3: ")) << message;
  EXPECT_NE(message.find("mat1 and mat2 shapes cannot be multiplied"), std::string::npos) << message;
  const auto named = made("keep(nn.layer{forward = function(self, x) return x:matmul(x) end, defined_at = 'exp.lua:7'})");
  const std::string other = error_of(named);
  EXPECT_TRUE(other.starts_with("in its function at exp.lua:7: ")) << other;
}

TEST_F(LuaLayerTest, TheContextIsInvalidAfterwards) {
  const auto subject = made("keep(nn.layer{forward = function(self, x, ctx) rawset(_G, 'stolen', ctx) return x end})");
  subject.forward({x}, context);
  EXPECT_NE(run("return stolen.mode").find("valid during its forward only"), std::string::npos);
}

TEST_F(LuaLayerTest, RefusesWrongOptions) {
  EXPECT_NE(run("nn.layer{}").find("option 'forward' is missing"), std::string::npos);
  EXPECT_NE(run("nn.layer{forward = 3}").find("must be a "), std::string::npos);
  EXPECT_NE(run("nn.layer{forward = print, params = {w = 3}}").find("nn.layer.params.w must be"), std::string::npos);
  EXPECT_NE(run("nn.layer{forward = print, io = {input = {'h'}}}").find("did you mean 'inputs'?"), std::string::npos);
}

}  // namespace
}  // namespace zt::nn
