// The functions of zt.core that are not operators.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "script.h"

namespace zt::test {
namespace {

class CoreTest : public Script {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("zt_core_{}", getpid());
    std::filesystem::create_directories(folder_);
    L = lua::new_state({.rank = 2, .size = 4, .launch = Launch::mpi, .dry = true, .threads = nullptr}, {});
    ASSERT_EQ(run("core = require 'zt.core'"), "");
    ASSERT_EQ(run("folder = '" + folder_ + "'"), "");
  }
  void TearDown() override {
    Script::TearDown();
    std::filesystem::remove_all(folder_);
  }
  std::string folder_;
};

TEST_F(CoreTest, World) {
  EXPECT_EQ(run("local w = core.world; assert(w.rank == 2 and w.size == 4 and w.launch == 'mpi' and w.dry == true)"), "");
}

TEST_F(CoreTest, OperatorsByNameAndByIndex) {
  EXPECT_EQ(run("assert(core.op('add') and core.add and rawequal(core.add, core.add) and #core.ops() >= 1500)"), "");
  EXPECT_EQ(run("return core.matmull"), "test:1: zt has no function or operator 'matmull': did you mean 'matmul'?");
  EXPECT_EQ(run("return core[1]"), "test:1: zt is indexed by names, got a number");
  EXPECT_EQ(run("local zt = setmetatable({}, {__index = core}); assert(zt.zeros(2):numel() == 2)"), "");
}

TEST_F(CoreTest, HooksHaveNamesAndAreFunctions) {
  EXPECT_EQ(run("core.set_hook('dry_step', function() end)"), "");
  EXPECT_EQ(run("core.set_hook('dri_step', function() end)"), "test:1: there is no hook 'dri_step': did you mean 'dry_step'?");
  EXPECT_EQ(run("core.set_hook('dry_step', {})"), "test:1: argument 2: a function expected, got a table");
}

TEST_F(CoreTest, JsonRoundTrip) {
  EXPECT_EQ(run(R"(
    local text = core.json.encode{b = {1, 2.5, true, "x\n"}, a = 9007199254740993LL, c = {}}
    assert(text == '{"a":9007199254740993,"b":[1,2.5,true,"x\\n"],"c":{}}', text)
    local back = core.json.decode(text)
    assert(back.a == 9007199254740993LL and back.b[4] == "x\n" and #back.b == 4)
    assert(core.json.encode({1}, 1) == "[\n 1\n]"))"),
            "");
}

TEST_F(CoreTest, JsonOfWhatJsonCannotHold) {
  EXPECT_EQ(run("assert(core.json.encode{0 / 0, math.huge, -math.huge} == '[null,null,null]')"), "");
  EXPECT_EQ(run("assert(core.json.decode('[1,null,3]')[3] == 3 and core.json.decode('null') == nil)"), "");
  EXPECT_EQ(run("assert(core.json.encode('\\255') == '\"\\239\\191\\189\"')"), "");
  EXPECT_EQ(run("core.json.encode(core.zeros(1))"),
            "test:1: a tensor cannot be written as JSON: only booleans, numbers, strings, lists and tables can");
  const std::string message = run("core.json.decode('{\"a\": }')");
  EXPECT_TRUE(message.starts_with("test:1: not JSON, at byte 7 of 7:")) << message;
}

TEST_F(CoreTest, Files) {
  EXPECT_EQ(run(R"(
    local deep = folder .. "/a/b"
    assert(not core.exists(deep))
    core.mkdir_p(deep)
    core.mkdir_p(deep)
    assert(core.exists(deep))
    local path = deep .. "/file"
    core.write_file(path, "one\0two")
    core.write_file(path, "new\0text")
    local file = io.open(path, "rb")
    assert(file:read("*a") == "new\0text")
    file:close()
    core.copy_file(path, path .. "2")
    core.copy_file(path, path .. "2")
    assert(core.exists(path .. "2")))"),
            "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/a/b"), {}), 2);  // no temporary files remain
}

TEST_F(CoreTest, FileErrorsNamePathAndReason) {
  EXPECT_EQ(
      run("core.write_file('/nowhere/x', 'y')"),
      "test:1: cannot write '/nowhere/x': No such file or directory: check the path. Make the folder first if it is missing");
  EXPECT_EQ(run("core.mkdir_p('/dev/null/x')"), "test:1: cannot make the folder '/dev/null/x': Not a directory");
  EXPECT_EQ(run("core.copy_file('/nowhere/x', '/tmp/y')"),
            "test:1: cannot copy '/nowhere/x' to '/tmp/y': No such file or directory");
}

// The target of the rename is a folder: its contents stay, and no temporary file remains.
TEST_F(CoreTest, FailedWriteLeavesNothingBehind) {
  std::filesystem::create_directories(folder_ + "/target/inside");
  const std::string message = run("core.write_file(folder .. '/target', 'text')");
  EXPECT_NE(message.find("cannot write '" + folder_ + "/target': Is a directory"), std::string::npos) << message;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

// A file size limit makes the write fail in the middle of the text, as a full disk does.
TEST_F(CoreTest, WriteThatFailsHalfwayKeepsTheOldFile) {
  ASSERT_EQ(run("core.write_file(folder .. '/metrics', 'old')"), "");
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = run("core.write_file(folder .. '/metrics', ('x'):rep(100000))");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(message.starts_with("test:1: cannot write '" + folder_ + "/metrics': File too large: ")) << message;
  EXPECT_EQ(run("assert(io.open(folder .. '/metrics'):read('*a') == 'old')"), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(CoreTest, System) {
  EXPECT_EQ(run(R"(
    local before = core.now()
    core.sleep(0.01)
    local passed = core.now() - before
    assert(passed >= 0.01 and passed < 5, passed)
    local m = core.memory()
    assert(m.rss_anon > 2 ^ 20 and m.peak_rss >= m.rss and m.rss >= m.rss_anon)
    assert(core.terminal_width() > 0 and type(core.isatty(1)) == "boolean" and core.isatty(99) == false)
    core.set_num_threads(1)
    assert(core.num_threads() == 1)
    assert(core.suggest("matmull", {"matmul", "sum"}) == ": did you mean 'matmul'?")
    local names = {"embedding.weight", "head.norm.weight", "head.weight"}
    assert(core.suggest("embeding", names) == ": did you mean 'embedding.weight'?")
    assert(core.suggest("hed", names) == ": did you mean 'head.norm.weight'?")
    assert(core.suggest("head.wieght", names) == ": did you mean 'head.weight'?"))"),
            "");
  EXPECT_EQ(run("core.set_num_threads(0)"), "test:1: set_num_threads: at least 1 thread is needed, got 0");
}

// Two states of one process share nothing. Ranks that are threads rely on this.
TEST_F(CoreTest, StatesAreIndependent) {
  lua_State* other = lua::new_state({}, {});
  std::swap(L, other);
  EXPECT_EQ(run("local c = require 'zt.core'; assert(c.world.size == 1); c.set_default_dtype('float64'); c.manual_seed(9)"), "");
  std::swap(L, other);
  EXPECT_EQ(run("assert(core.world.size == 4 and core.default_dtype() == 'float32')"), "");
  lua_close(other);
  EXPECT_EQ(run("assert(core.zeros(2):add(1):sum():item() == 2)"), "");
}

// Each state draws from its own generator, so with equal seeds all ranks that are threads draw the same numbers.
TEST_F(CoreTest, StatesInThreadsDrawTheSameNumbers) {
  std::vector<double> sums(4);
  std::vector<lua_State*> states(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sums.size(); ++i) {
    threads.emplace_back([&sum = sums[i], &own = states[i]] {
      own = lua::new_state({}, {});
      const char* code =
          "local zt = require 'zt.core'; zt.manual_seed(3); local s = 0 "
          "for i = 1, 200 do s = s + zt.randn(10):add(zt.rand(10)):sum():item() end return s";
      if (luaL_loadstring(own, code) == 0 && lua_pcall(own, 0, 1, 0) == 0) sum = lua_tonumber(own, -1);
    });
  }
  for (auto& thread : threads) thread.join();
  // The thread sanitizer does not see LuaJIT's allocator. If one thread closed its state while another ran, memory that passes
  // from one to the other would look like a race.
  for (lua_State* state : states) lua_close(state);
  EXPECT_NE(sums[0], 0);
  for (const double sum : sums) EXPECT_EQ(sum, sums[0]);
}

TEST_F(CoreTest, ClosingWithTensorsAliveInAScope) {
  EXPECT_EQ(run("kept = core.zeros(3); pcall(core.scope, function() lost = core.zeros(2) error('x') end)"), "");
}

}  // namespace
}  // namespace zt::test
