#include "zt/io/io_errors.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "zt/base/tensor.h"

namespace zt::io {

namespace {

std::string full_disk(FileSystem& files, const std::string& path, int64_t needed) {
  const int64_t free = files.free_bytes(folder_of(path));
  const std::string have = free < 0 ? "an unknown amount is" : human_bytes(free) + " are";
  const std::string want = needed > 0 ? human_bytes(needed) + " are needed and " : "";
  return fmt::format("{}{} free. Free some space or choose another disk, and run this again", want, have);
}

const char* advice(std::string_view action, int error) {
  switch (error) {
    case ENOENT:
      if (action == "write" || action == "create" || action == "make the folder") {
        return "check the path. Make the folder first if it is missing";
      }
      return "check the path";
    case EEXIST:
      return "an existing file is not overwritten here: choose another name or remove the file";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its folder";
    case EROFS:
      return "the file system is read-only: choose another";
    case EISDIR:
      return "choose another name or remove the folder";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "the disk or the network file system failed (see dmesg). Do not trust the file that was being written";
    case EFBIG:
      return "the file system or a limit (ulimit -f) allows no file of that size: choose another disk or write smaller files";
    case EINTR:
    case EAGAIN:
      return "all retries failed for about 4 s: find out what keeps the file system busy";
    default:
      return "check the file system";
  }
}

}  // namespace

DiskFull::~DiskFull() = default;

void io_fault(FileSystem& files, std::string_view action, const std::string& path, int64_t error, int64_t needed) {
  const int number = static_cast<int>(-error);
  const std::string start = fmt::format("cannot {} '{}': {}: ", action, path, std::strerror(number));
  if (number == ENOSPC || number == EDQUOT) throw DiskFull(start + full_disk(files, path, needed));
  throw Fault(start + advice(action, number));
}

const char* phrase_for(EntryKind kind) {
  constexpr std::array kPhrases{"missing", "a file", "a folder", "a FIFO", "a socket", "a device", "neither a file nor a folder"};
  return kPhrases.at(static_cast<size_t>(kind));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<size_t>(slash, 1));
}

void pause_before_retry(int retry) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * (retry - 1)));
}

std::unique_ptr<File> open_file(FileSystem& files, const std::string& path, const OpenOptions& options) {
  Opened opened;
  retry_or_fault(files, options.access == Access::read ? "open" : "create", path, [&] {
    opened = files.open(path, options);
    if (opened.kind != EntryKind::file && opened.error != -EEXIST && opened.error != -EACCES) {
      fault("cannot open '{}': it is {}, not a regular file. Give the path of a file on disk", path, phrase_for(opened.kind));
    }
    return opened.error;
  });
  return std::move(opened.file);
}

void sync_folder_or_fault(FileSystem& files, const std::string& folder) {
  retry_or_fault(files, "sync the folder", folder, [&] { return files.sync_folder(folder); });
}

}  // namespace zt::io
