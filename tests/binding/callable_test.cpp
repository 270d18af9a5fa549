// Lua functions called from C++: results, error families, threads, lifetime.
#include <thread>

#include "script.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

std::unique_ptr<lua::Callable> held;
int hold(lua_State* L) {
  held = std::make_unique<lua::Callable>(L, 1);
  return 0;
}
int call_held(lua_State* L) {
  lua_State* on = held->begin();
  EXPECT_EQ(on, L);  // the innermost coroutine
  held->call(0, 1);
  return 1;
}
int abort_here(lua_State*) {
  throw Aborted("another rank failed");
}
int misuse_here(lua_State*) {
  misuse("not like this");
}

template <class Exception>
std::string thrown() {
  try {
    held->begin();
    held->call(0, 0);
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

class CallableTest : public Script {
 protected:
  void SetUp() override {
    Script::SetUp();
    set<hold>("hold");
    set<call_held>("call_held");
    set<abort_here>("abort_here");
    set<misuse_here>("misuse_here");
  }
  void TearDown() override {
    held.reset();
    Script::TearDown();
  }
};

TEST_F(CallableTest, CallsWithArgumentsAndResults) {
  ASSERT_EQ(run("hold(function(a, b) return a + b, a * b end)"), "");
  lua_State* on = held->begin();
  lua::push(on, 3.0);
  lua::push(on, 4.0);
  held->call(2, 2);
  EXPECT_EQ(lua::check_number(on, -2), 7);
  EXPECT_EQ(lua::check_number(on, -1), 12);
  lua_pop(on, 2);
  EXPECT_EQ(lua_gettop(on), 0);
}

TEST_F(CallableTest, LuaErrorsHaveNoTracebackInTheirText) {
  ASSERT_EQ(run("hold(function()\n local x = nil\n return x.y end)"), "");
  EXPECT_EQ(thrown<Error>(), "test:3: attempt to index local 'x' (a nil value)");
  EXPECT_EQ(lua_gettop(L), 0);
}

TEST_F(CallableTest, NativeExceptionsKeepTheirFamily) {
  ASSERT_EQ(run("hold(function() abort_here() end)"), "");
  EXPECT_TRUE(thrown<Aborted>().starts_with("test:1: another rank failed"));
  ASSERT_EQ(run("hold(function() misuse_here() end)"), "");
  EXPECT_TRUE(thrown<Misuse>().starts_with("test:1: not like this"));
  ASSERT_EQ(run("hold(function() local _, e = pcall(abort_here) error(e, 0) end)"), "");
  EXPECT_TRUE(thrown<Aborted>().starts_with("test:1: another rank failed"));
}

TEST_F(CallableTest, NonStringErrorsAreShown) {
  ASSERT_EQ(run("hold(function() error({code = 7}) end)"), "");
  EXPECT_TRUE(thrown<Error>().starts_with("the error value {code = 7} (no string)"));
}

TEST_F(CallableTest, YieldAcrossIsAnError) {
  EXPECT_EQ(run(R"(
    hold(function() coroutine.yield(1) end)
    local ok, message = coroutine.resume(coroutine.create(function() call_held() end))
    assert(not ok and message:match("attempt to yield across C%-call boundary"), message)
    hold(function() return 5 end)
    assert(coroutine.wrap(function() return call_held() end)() == 5))"),
            "");
}

TEST_F(CallableTest, OtherThreadIsRefused) {
  ASSERT_EQ(run("hold(function() end)"), "");
  std::string text;
  std::thread([&] { text = thrown<Misuse>(); }).join();
  EXPECT_TRUE(text.starts_with("this Lua function was called on another thread")) << text;
}

TEST_F(CallableTest, OutlivesTheStateAsADeadHandle) {
  ASSERT_EQ(run("hold(function() end)"), "");
  lua_close(std::exchange(L, nullptr));
  EXPECT_TRUE(thrown<Misuse>().starts_with("this Lua function cannot be called: its Lua state was closed"));
}

TEST_F(CallableTest, ReferencesAreFreed) {
  EXPECT_EQ(run(R"(
    local weak = setmetatable({}, {__mode = "k"})
    for i = 1, 100 do
      local f = function() return i end
      weak[f] = true
      hold(f)
    end
    hold(print)
    hold(print)
    collectgarbage()
    collectgarbage()
    local n = 0
    for _ in pairs(weak) do n = n + 1 end
    assert(n <= 1, n))"),
            "");
}

}  // namespace
}  // namespace zt::test
