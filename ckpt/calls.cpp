#include "calls.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "zt/error.h"
#include "zt/tensor.h"

namespace zt::ckpt {

namespace {

std::string full_disk(FileSystem& files, const std::string& path, int64_t needed) {
  const int64_t free = files.free_bytes(folder_of(path));
  const std::string have = free < 0 ? "an unknown amount is" : human_bytes(free) + " are";
  const std::string want = needed > 0 ? human_bytes(needed) + " are needed and " : "";
  return fmt::format(
      "{}{} free. Remove old checkpoints (and what saves that died have left: ztoolkit ckpt gc), or save to another disk", want,
      have);
}

const char* advice(int error) {
  switch (error) {
    case ENOENT:
      return "check the path; its folder must exist";
    case EEXIST:
      return "the name is taken, and nothing is overwritten here: choose another or remove it";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its folder";
    case EROFS:
      return "the file system is read-only: choose another";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "the disk or the network file system failed (see dmesg): what was being written is not to be trusted";
    case EFBIG:
      return "the file system or a limit (ulimit -f) allows no file of that size: choose another disk or use more ranks";
    case EINTR:
    case EAGAIN:
      return "it was tried for seconds: see what keeps the file system busy";
    default:
      return "check the file system";
  }
}

}  // namespace

void io_fault(FileSystem& files, std::string_view doing, const std::string& path, int64_t error, int64_t needed) {
  const int number = static_cast<int>(-error);
  const bool is_full = number == ENOSPC || number == EDQUOT;
  fault("cannot {} {}: {}: {}", doing, path, std::strerror(number), is_full ? full_disk(files, path, needed) : advice(number));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<size_t>(slash, 1));
}

void pause_before_repeat(int repeats) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * (repeats - 1)));
}

std::unique_ptr<File> open_file(FileSystem& files, const std::string& path, const OpenOptions& options) {
  Opened opened;
  must(files, options.access == Access::read ? "open" : "create", path, [&] {
    opened = files.open(path, options);
    if (opened.instead && opened.error != -EEXIST && opened.error != -EACCES) {
      fault("cannot open {}: it is {}, where a file is meant: remove it, or give another path", path, opened.instead);
    }
    return opened.error;
  });
  return std::move(opened.file);
}

}  // namespace zt::ckpt
