// Typed userdata: methods, getters, identity, lifetime.
#include "script.h"
#include "zt/base/error.h"

namespace zt::test {

struct Engine {
  static inline int alive = 0;
  int power = 90;
  Engine() { ++alive; }
  ~Engine() { --alive; }
};

}  // namespace zt::test

namespace zt {
ZT_OBJECT(test::Engine)
ZT_DEFINE_OBJECT(test::Engine, "Engine")
}  // namespace zt

namespace zt::test {
namespace {

int new_engine(lua_State* L) {
  lua::push(L, std::make_shared<Engine>());
  return 1;
}
int same(lua_State* L) {
  lua::push(L, lua::check<Engine>(L, 1));
  return 1;
}
int power(lua_State* L) {
  lua::push(L, static_cast<int64_t>(lua::check<Engine>(L, 1)->power));
  return 1;
}
int tune(lua_State* L) {
  const auto engine = lua::check<Engine>(L, 1);
  engine->power += static_cast<int>(lua::check_integer(L, 2));
  lua_settop(L, 1);
  return 1;
}

class ObjectTest : public Script {
 protected:
  void SetUp() override {
    Script::SetUp();
    set<new_engine>("new_engine");
    set<same>("same");
    lua::TypeBuilder<Engine>(L).getter<power>("power").method<tune>("tune");
  }
};

TEST_F(ObjectTest, MethodsAndGetters) {
  EXPECT_EQ(run("local e = new_engine(); assert(e:tune(10).power == 100)"), "");
}

TEST_F(ObjectTest, UnknownMemberNamesTheNearest) {
  EXPECT_EQ(run("local e = new_engine(); return e.pwer"), "test:1: an Engine has no member 'pwer': did you mean 'power'?");
}

TEST_F(ObjectTest, IdentityIsThePointer) {
  EXPECT_EQ(run("local e = new_engine(); assert(same(e) == e and new_engine() ~= e and tostring(e):match('^Engine '))"), "");
}

TEST_F(ObjectTest, WrongSelf) {
  EXPECT_EQ(
      run("local e = new_engine(); e.tune(1, 2)"),
      "test:1: 'tune' is a method: write object:tune(...) with ':', not object.tune(...). Its object must be an Engine, got a number");
  EXPECT_EQ(
      run("local e = new_engine(); e.tune()"),
      "test:1: 'tune' is a method: write object:tune(...) with ':', not object.tune(...). Its object must be an Engine, got "
      "no value");
  EXPECT_EQ(run("local e = new_engine(); e:tune('x')"), "test:1: argument 1: an integer expected, got a string");
  EXPECT_EQ(run("same(io.stdout)"), "test:1: argument 1: an Engine expected, got a userdata");
}

TEST_F(ObjectTest, CollectedWithTheState) {
  EXPECT_EQ(run("for i = 1, 10 do new_engine() end; collectgarbage(); collectgarbage()"), "");
  EXPECT_EQ(Engine::alive, 0);
  EXPECT_EQ(run("kept = new_engine()"), "");
  EXPECT_EQ(Engine::alive, 1);
  lua_close(std::exchange(L, nullptr));
  EXPECT_EQ(Engine::alive, 0);
}

int nothing(lua_State*) {
  return 0;
}
void fill_toy(lua::Module& module) {
  module.function<nothing>("shard").table("schedule", [](lua::Module& nested) { nested.function<nothing>("gpipe"); });
}

TEST_F(ObjectTest, ModulesRefuseUnknownNames) {
  lua_pushcfunction(L, [](lua_State* state) { return lua::detail::open_module(state, {"toy", ZT_ABI, ZT_BUILD_ID}, fill_toy); });
  ASSERT_EQ(lua_pcall(L, 0, 1, 0), 0);
  lua_setglobal(L, "toy");
  EXPECT_EQ(run("toy.shard() toy.schedule.gpipe()"), "");
  EXPECT_EQ(run("toy.sharrd{}"), "test:1: zt.toy has no 'sharrd': did you mean 'shard'?");
  EXPECT_EQ(run("toy.schedule.gpip()"), "test:1: zt.toy.schedule has no 'gpip': did you mean 'gpipe'?");
  EXPECT_EQ(run("print(toy[1])"), "test:1: zt.toy is indexed by names, got a number");
}

void fill_nothing(lua::Module&) {}

TEST_F(ObjectTest, ModuleOfAnotherBuildIsRefused) {
  lua_pushcfunction(L, [](lua_State* state) { return lua::detail::open_module(state, {"toy", 99, "0123"}, fill_nothing); });
  ASSERT_NE(lua_pcall(L, 0, 1, 0), 0);
  const std::string message = lua_tostring(L, -1);
  EXPECT_TRUE(message.starts_with("the module zt.toy was built against SDK ABI 99, build id 0123; this ztoolkit has ABI"))
      << message;
}

}  // namespace
}  // namespace zt::test
