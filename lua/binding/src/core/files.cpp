#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/open.h"
#include "zt/error.h"

namespace zt::lua {

namespace {

[[noreturn]] void file_fault(const char* action, const std::string& path, int code) {
  fault("cannot {} '{}': {}", action, path, std::strerror(code));
}

int exists(lua_State* L) {
  std::error_code ignored;  // what cannot be looked at does not exist for the script
  push(L, std::filesystem::exists(check_string(L, 1), ignored));
  return 1;
}

int mkdir_p(lua_State* L) {
  const std::string path = check_string(L, 1);
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) file_fault("make the folder", path, code.value());
  return 0;
}

// copy_file(from, to): replaces `to`.
int copy_file(lua_State* L) {
  const std::string from = check_string(L, 1), to = check_string(L, 2);
  std::error_code code;
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, code);
  if (code) fault("cannot copy '{}' to '{}': {}", from, to, code.message());
  return 0;
}

// A file that is only there under its own name when it is complete and on the disk.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path)
      : path_(std::move(path)), temporary_(fmt::format("{}.{}.tmp", path_, getpid())), descriptor_(create()) {}
  ~AtomicFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!is_committed_) unlink(temporary_.c_str());
  }
  AtomicFile(const AtomicFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) file_fault("write", path_, errno);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }

  void commit() {
    if (fsync(descriptor_) != 0 && errno != EINVAL) file_fault("write", path_, errno);
    if (close(std::exchange(descriptor_, -1)) != 0) file_fault("write", path_, errno);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) file_fault("write", path_, errno);
    is_committed_ = true;
  }

 private:
  int create() const {
    const int descriptor = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) file_fault("write", path_, errno);
    return descriptor;
  }

  std::string path_, temporary_;
  int descriptor_;
  bool is_committed_ = false;
};

// write_file(path, text): the file has the old or the new contents whatever happens. A full disk is a Fault.
int write_file(lua_State* L) {
  AtomicFile file(check_string(L, 1));
  file.write(check_string(L, 2));
  file.commit();
  return 0;
}

}  // namespace

void open_files(Module& module) {
  module.function<exists>("exists")
      .function<mkdir_p>("mkdir_p")
      .function<copy_file>("copy_file")
      .function<write_file>("write_file");
}

}  // namespace zt::lua
