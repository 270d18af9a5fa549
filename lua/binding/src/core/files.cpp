#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/open.h"
#include "zt/base/error.h"
#include "zt/io/atomic_file.h"

namespace zt::lua {

namespace {

[[noreturn]] void file_fault(const char* action, const std::string& path, int code) {
  fault("cannot {} '{}': {}", action, path, std::strerror(code));
}

int exists(lua_State* L) {
  std::error_code ignored;  // an unreadable path counts as missing
  push(L, std::filesystem::exists(check_string(L, 1), ignored));
  return 1;
}

// file_facts(path) -> {bytes, age}: the age in seconds since it was written, by this machine's clock; nil if there is no such
// file
int file_facts(lua_State* L) {
  const std::filesystem::path path = check_string(L, 1);
  std::error_code code;
  const auto bytes = std::filesystem::file_size(path, code);
  if (code) return 0;
  const auto written = std::filesystem::last_write_time(path, code);
  if (code) return 0;
  const std::chrono::duration<double> age = std::filesystem::file_time_type::clock::now() - written;
  push(L, Value(Value::Table{{"bytes", Value(static_cast<int64_t>(bytes))}, {"age", Value(std::max(0.0, age.count()))}}));
  return 1;
}

int mkdir_p(lua_State* L) {
  const std::string path = check_string(L, 1);
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) file_fault("make the folder", path, code.value());
  return 0;
}

// copy_file(from, to): replaces an existing file `to`.
int copy_file(lua_State* L) {
  const std::string from = check_string(L, 1), to = check_string(L, 2);
  std::error_code code;
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, code);
  if (code) fault("cannot copy '{}' to '{}': {}", from, to, code.message());
  return 0;
}

// write_file(path, text): replaces the content of `path` atomically (io::AtomicFile).
int write_file(lua_State* L) {
  const std::string path = check_string(L, 1);
  io::replace_file(path, check_string(L, 2));
  return 0;
}

}  // namespace

void open_files(Module& module) {
  module.function<exists>("exists")
      .function<file_facts>("file_facts")
      .function<mkdir_p>("mkdir_p")
      .function<copy_file>("copy_file")
      .function<write_file>("write_file");
}

}  // namespace zt::lua
