#include <ATen/Parallel.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "binding_state.h"
#include "core/open.h"
#include "guard.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/process/log.h"

namespace zt::lua {

namespace {

constexpr int kDefaultWidth = 80;

// now() -> seconds of a monotonic clock. Only differences are meaningful.
int now(lua_State* L) {
  push(L, std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  return 1;
}

int sleep(lua_State* L) {
  std::this_thread::sleep_for(std::chrono::duration<double>(check_number(L, 1)));
  return 0;
}

// Returns the bytes of a line "VmHWM:   1234 kB" of /proc/self/status; 0 if the system has no such line.
int64_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

// memory() -> {rss, rss_anon, peak_rss} in bytes. rss and peak_rss include shared pages.
int memory(lua_State* L) {
  push(L, Value(Value::Table{
              {"rss", status_bytes("VmRSS")}, {"rss_anon", status_bytes("RssAnon")}, {"peak_rss", status_bytes("VmHWM")}}));
  return 1;
}

// versions() -> {ztoolkit, abi, build_id, libtorch, compiler}, for the record of a run.
int versions(lua_State* L) {
  push(L, Value(Value::Table{{"ztoolkit", ZT_VERSION},
                             {"abi", ZT_ABI},
                             {"build_id", ZT_BUILD_ID},
                             {"libtorch", ZT_LIBTORCH_VERSION},
                             {"compiler", ZT_COMPILER}}));
  return 1;
}

// human_bytes(3355443) -> "3.2 MiB"
int bytes_text(lua_State* L) {
  push(L, human_bytes(check_integer(L, 1)));
  return 1;
}

int is_terminal(lua_State* L) {
  push(L, isatty(static_cast<int>(check_integer(L, 1))) == 1);
  return 1;
}

int terminal_width(lua_State* L) {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  push(L, static_cast<int64_t>(is_known ? size.ws_col : kDefaultWidth));
  return 1;
}

int num_threads(lua_State* L) {
  push(L, static_cast<int64_t>(at::get_num_threads()));
  return 1;
}

int set_num_threads(lua_State* L) {
  const int64_t count = check_integer(L, 1);
  if (count < 1) misuse("set_num_threads: at least 1 thread is needed, got {}", count);
  at::set_num_threads(static_cast<int>(count));
  return 0;
}

// suggest(name, names) -> ": did you mean 'x'?" or ": known are ...": the end of a message about an unknown name.
int suggest_name(lua_State* L) {
  std::vector<std::string> names;
  convert(check_value(L, 2), "names", names);
  push(L, suggest(check_string(L, 1), names));
  return 1;
}

// log(level, message)
int log_message(lua_State* L) {
  log(parse_log_level(check_string(L, 1)), world(L), check_string(L, 2));
  return 0;
}

// set_log_level(name) -> the level before this call
int change_log_level(lua_State* L) {
  push(L, std::string(name_of(set_log_level(parse_log_level(check_string(L, 1))))));
  return 1;
}

// set_run_folder(path): sets the folder of the run that this script has opened
int keep_run_folder(lua_State* L) {
  set_run_folder(check_string(L, 1));
  return 0;
}

// library_folder(folder): marks Lua files in this folder as library files; errors name the first caller's line outside of them
int add_library_folder(lua_State* L) {
  const std::string given = check_string(L, 1);
  if (given.empty()) misuse("library_folder takes the name of a folder, got an empty string");
  const std::string folder = fmt::format("@{}{}", given, given.ends_with('/') ? "" : "/");
  auto& folders = binding_state(L).library_folders;
  if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
  return 0;
}

// script_position() -> "file:line: " of the innermost caller that is not in a library file
int caller_position(lua_State* L) {
  push(L, script_position(L, binding_state(L)));
  return 1;
}

const char* launch_name(Launch launch) {
  switch (launch) {
    case Launch::single:
      return "single";
    case Launch::threads:
      return "threads";
    case Launch::mpi:
      return "mpi";
  }
  return "";
}

void push_world(lua_State* L) {
  const World& here = world(L);
  push(L, Value(Value::Table{{"rank", static_cast<int64_t>(here.rank)},
                             {"size", static_cast<int64_t>(here.size)},
                             {"ranks_per_node", static_cast<int64_t>(here.ranks_per_node)},
                             {"launch", launch_name(here.launch)},
                             {"dry", here.dry}}));
}

}  // namespace

void open_system(Module& module) {
  push_world(module.state());
  lua_setfield(module.state(), -2, "world");
  module.function<now>("now")
      .function<sleep>("sleep")
      .function<memory>("memory")
      .function<versions>("versions")
      .function<bytes_text>("human_bytes")
      .function<is_terminal>("isatty")
      .function<terminal_width>("terminal_width")
      .function<num_threads>("num_threads")
      .function<set_num_threads>("set_num_threads")
      .function<suggest_name>("suggest")
      .function<log_message>("log_message")
      .function<change_log_level>("set_log_level")
      .function<keep_run_folder>("set_run_folder")
      .function<add_library_folder>("library_folder")
      .function<caller_position>("script_position");
}

}  // namespace zt::lua
