// Exceptions of our code, ATen and Lua become Lua errors with the script's position.
#include <ATen/ops/zeros.h>

#include "script.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

struct Counted {
  static inline int alive = 0;
  Counted() { ++alive; }
  ~Counted() { --alive; }
};

int fail_with_misuse(lua_State*) {
  const Counted counted;
  misuse("seven is too many: give six");
}
int fail_in_aten(lua_State* L) {
  lua::push(L, at::zeros({2, 3}).matmul(at::zeros({2, 3})));
  return 1;
}
int fail_in_lua(lua_State* L) {
  const Counted counted;
  return luaL_error(L, "raised by Lua itself");
}
int need_number(lua_State* L) {
  lua::push(L, lua::check_number(L, 1) + static_cast<double>(lua::check_integer(L, 2)));
  return 1;
}

using GuardTest = Script;

TEST_F(GuardTest, MessageCarriesThePosition) {
  set<fail_with_misuse>("f");
  EXPECT_EQ(run("\n\nf()"), "test:3: seven is too many: give six");
  EXPECT_EQ(Counted::alive, 0);
}

// The script "test" calls a library function, which calls a native function that fails.
TEST_F(GuardTest, MessageNamesTheScriptNotTheLibrary) {
  set<fail_with_misuse>("f");
  const std::string library = "\n\nrawset(_G, 'g', function() f(); return 1 end)";
  ASSERT_EQ(luaL_loadbuffer(L, library.data(), library.size(), "@/somewhere/zt/loss.lua"), 0);
  ASSERT_EQ(lua_pcall(L, 0, 0, 0), 0);
  EXPECT_EQ(run("\ng()"), "/somewhere/zt/loss.lua:3: seven is too many: give six");
  ASSERT_EQ(run("require('zt.core').library_folder('/somewhere/zt')"), "");
  EXPECT_EQ(run("\ng()"), "test:2: seven is too many: give six");
  EXPECT_EQ(run("local text = require('zt.core').script_position() assert(text == 'test:1: ', text)"), "");
}

// A subcommand is a library file that runs without a script, so the message has no position.
TEST_F(GuardTest, MessageOfASubcommandHasNoPosition) {
  set<fail_with_misuse>("f");
  ASSERT_EQ(run("require('zt.core').library_folder('/somewhere/zt')"), "");
  const std::string command = "local function check() f(); return 1 end\ncheck()\n";
  ASSERT_EQ(luaL_loadbuffer(L, command.data(), command.size(), "@/somewhere/zt/cmd/import.lua"), 0);
  ASSERT_NE(lua_pcall(L, 0, 0, 0), 0);
  EXPECT_STREQ(lua_tostring(L, -1), "seven is too many: give six");
}

TEST_F(GuardTest, AtenErrorsComeWithoutCppBacktrace) {
  set<fail_in_aten>("f");
  const std::string message = run("f()");
  EXPECT_TRUE(message.starts_with("test:1: mat1 and mat2 shapes cannot be multiplied")) << message;
  EXPECT_EQ(message.find("frame #"), std::string::npos) << message;
}

TEST_F(GuardTest, LuaErrorsPassThroughAndDestructorsRun) {
  set<fail_in_lua>("f");
  EXPECT_EQ(run("f()"), "test:1: raised by Lua itself");
  EXPECT_EQ(Counted::alive, 0);
}

TEST_F(GuardTest, SurvivesManyErrorsUnderTheJit) {
  set<fail_with_misuse>("f");
  EXPECT_EQ(run("local n = 0; for i = 1, 20000 do if not pcall(f) then n = n + 1 end end; assert(n == 20000)"), "");
  EXPECT_EQ(Counted::alive, 0);
}

TEST_F(GuardTest, ArgumentMessages) {
  set<need_number>("f");
  EXPECT_EQ(run("f('x', 1)"), "test:1: argument 1: a number expected, got a string");
  EXPECT_EQ(run("f(1)"), "test:1: argument 2: an integer expected, got no value");
  EXPECT_EQ(run("f(1, 1.5)"), "test:1: argument 2: an integer expected, got 1.5");
  EXPECT_EQ(run("assert(f(1, 3LL) == 4)"), "");
}

}  // namespace
}  // namespace zt::test
