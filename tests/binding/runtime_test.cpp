// Starts Lua states and runs script files.
#include <filesystem>
#include <fstream>

#include "script.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

int end_here(lua_State*) {
  throw Aborted("another rank failed");
}

class RuntimeTest : public Script {
 protected:
  void SetUp() override {
    Script::SetUp();
    path_ = std::filesystem::temp_directory_path() / fmt::format("zt_runtime_{}.lua", getpid());
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    Script::TearDown();
  }
  std::optional<lua::ScriptError> run_file(const std::string& code, const std::vector<std::string>& args = {}) {
    std::ofstream(path_) << code;
    return lua::run_script(L, path_, args);
  }
  std::string path_;
};

TEST_F(RuntimeTest, ArgumentsAsInPlainLua) {
  const auto error =
      run_file("local a, b = ...; assert(a == 'x' and b == '2' and arg[1] == 'x' and #arg == 2 and arg[0])", {"x", "2"});
  EXPECT_FALSE(error) << error->message;
  std::ofstream(path_) << "assert(arg[-1] == 'run' and arg[-2] == 'ztoolkit' and arg[-3] == nil and arg[1] == 'x')";
  const auto with_words = lua::run_script(L, path_, {"x"}, {"ztoolkit", "run"});
  EXPECT_FALSE(with_words) << with_words->message;
}

TEST_F(RuntimeTest, ErrorsCarryFileLineAndTraceback) {
  const auto error = run_file("local function f()\n  error('broken')\nend\nf()");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, path_ + ":2: broken");
  EXPECT_TRUE(error->traceback.starts_with("stack traceback:\n")) << error->traceback;
  EXPECT_NE(error->traceback.find(path_ + ":4:"), std::string::npos) << error->traceback;
  EXPECT_FALSE(error->is_aborted);
}

// Calls argument 1 from C++, as a layer's forward is called, and adds words to its errors.
int call_from_native(lua_State* L) {
  lua::Callable function(L, 1);
  with_context([] { return "layer 'x'"; },
               [&] {
                 function.begin();
                 function.call(0, 0);
               });
  return 0;
}

TEST_F(RuntimeTest, TracebacksBeginWhereTheFirstOfNestedCallsFailed) {
  set<call_from_native>("call_from_native");
  const auto error = run_file("local function forward()\n  error('broken')\nend\ncall_from_native(forward)");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, path_ + ":4: layer 'x': " + path_ + ":2: broken");
  EXPECT_NE(error->traceback.find(path_ + ":2: in function <"), std::string::npos) << error->traceback;
  EXPECT_NE(error->traceback.find(path_ + ":4: in main chunk"), std::string::npos) << error->traceback;
  const auto again = run_file("pcall(call_from_native, function() error('broken') end)\nerror('other')");
  EXPECT_EQ(again->message, path_ + ":2: other");
  EXPECT_EQ(again->traceback.find(":1:"), std::string::npos) << again->traceback;
}

TEST_F(RuntimeTest, APlaceStandsOnceInAMessage) {
  set<call_from_native>("call_from_native");
  const auto error = run_file("call_from_native(function() error('broken') end)");
  EXPECT_EQ(error->message, path_ + ":1: layer 'x': broken");
}

TEST_F(RuntimeTest, TracebacksLeaveOutTheLibrary) {
  const std::string folder = path_ + ".library/";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(run("require('zt.core').library_folder('" + folder + "')"), "");
  std::ofstream(folder + "fail.lua") << "return function() error('not so', 0) end";
  const auto error = run_file("local fail = dofile('" + folder + "fail.lua')\nlocal function f()\n  fail()\nend\nf()");
  EXPECT_EQ(error->traceback.find("fail.lua"), std::string::npos) << error->traceback;
  EXPECT_EQ(error->traceback.find("'error'"), std::string::npos) << error->traceback;
  EXPECT_NE(error->traceback.find(":3: in function 'f'"), std::string::npos) << error->traceback;
  std::ofstream(folder + "raw.lua") << "return function() local x = nil; return x.y end";
  const auto raw = run_file("local raw = dofile('" + folder + "raw.lua')\nlocal y = raw()");
  EXPECT_NE(raw->traceback.find("raw.lua:1:"), std::string::npos) << raw->traceback;
  std::filesystem::remove_all(folder);
}

TEST_F(RuntimeTest, SyntaxErrorAndMissingFile) {
  const auto syntax = run_file("local x = = 1");
  ASSERT_TRUE(syntax);
  EXPECT_TRUE(syntax->message.starts_with(path_ + ":1: ")) << syntax->message;
  const auto missing = lua::run_script(L, "/nowhere/exp.lua", {});
  ASSERT_TRUE(missing);
  EXPECT_NE(missing->message.find("/nowhere/exp.lua"), std::string::npos);
}

TEST_F(RuntimeTest, AbortedIsRecognised) {
  set<end_here>("end_here");
  const auto error = run_file("end_here()");
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->is_aborted);
  EXPECT_EQ(error->message, path_ + ":1: another rank failed");
  EXPECT_FALSE(run_file("error('another')")->is_aborted);
}

TEST_F(RuntimeTest, NonStringErrorsAreShown) {
  EXPECT_EQ(run_file("error({code = 3})")->message, "the error value {code = 3} (no string)");
  EXPECT_EQ(run_file("error(nil)")->message, "the error value nil (no string)");
  EXPECT_EQ(run_file("error(setmetatable({}, {__tostring = function() return 'own text' end}))")->message,
            "the error value own text (no string)");
}

TEST_F(RuntimeTest, ErrorValuesThatCannotBeShown) {
  const auto error = run_file("error(setmetatable({}, {__tostring = function() error('inner') end}))");
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("the error value is a table whose __tostring failed itself: "), std::string::npos)
      << error->message;
  EXPECT_NE(error->message.find("inner"), std::string::npos) << error->message;
  EXPECT_EQ(lua_gettop(L), 0);
  EXPECT_FALSE(run_file("local x = 1")) << "the state stays usable";
}

TEST_F(RuntimeTest, StrictGlobals) {
  EXPECT_EQ(run("return pront"), "test:1: the global 'pront' is not defined: did you mean 'print'?");
  EXPECT_EQ(run("my_own = 1; local function f() my_own = 2 end; f(); assert(my_own == 2)"), "");
  EXPECT_EQ(
      run("local function f() other = 2 end; f()"),
      "test:1: a function assigns the new global 'other': write 'local other', or set it first at the top level of the file");
  EXPECT_EQ(run("local function f() rawset(_G, 'other', 2) end; f(); assert(other == 2)"), "");
}

TEST_F(RuntimeTest, PathsComeBeforeLuasOwn) {
  lua_State* own = lua::new_state({}, {"/a/?.lua", "/b/?.so"});
  lua_getglobal(own, "package");
  lua_getfield(own, -1, "path");
  EXPECT_TRUE(std::string(lua_tostring(own, -1)).starts_with("/a/?.lua;"));
  EXPECT_GT(std::string(lua_tostring(own, -1)).size(), std::string("/a/?.lua;").size());
  lua_getfield(own, -2, "cpath");
  EXPECT_TRUE(std::string(lua_tostring(own, -1)).starts_with("/b/?.so;"));
  lua_close(own);
}

}  // namespace
}  // namespace zt::test
