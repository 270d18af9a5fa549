#include "zt/io/posix_fs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "posix_queue.h"
#include "zt/process/log.h"

namespace zt::io {

namespace {

constexpr int64_t kDirectAlignment = 4096;

int result_of(int returned) {
  return returned == 0 ? 0 : -errno;
}

// Owns a file descriptor; the destructor closes it.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }

  int get() const { return value_; }
  bool is_open() const { return value_ >= 0; }

 private:
  int value_;
};

// An open file: a descriptor and the queue that performs reads and writes.
class PosixFile : public File {
 public:
  PosixFile(Descriptor descriptor, int64_t alignment, std::unique_ptr<PosixQueue> queue)
      : descriptor_(std::move(descriptor)), alignment_(alignment), queue_(std::move(queue)) {}

  int64_t alignment() const override { return alignment_; }
  void submit(const FileOperation& operation) override { queue_->submit(operation); }
  Completion wait() override { return queue_->wait(); }

  int64_t size() override {
    struct stat status {};
    return fstat(descriptor_.get(), &status) == 0 ? status.st_size : -errno;
  }
  int truncate(int64_t bytes) override { return result_of(ftruncate(descriptor_.get(), bytes)); }
  int reserve(int64_t bytes) override { return result_of(fallocate(descriptor_.get(), 0, 0, bytes)); }
  int sync() override { return result_of(fsync(descriptor_.get())); }

 private:
  const Descriptor descriptor_;
  const int64_t alignment_;
  const std::unique_ptr<PosixQueue> queue_;  // destroyed before the descriptor that it uses
};

int flags_of(Access access) {
  if (access == Access::read) return O_RDONLY;
  return O_WRONLY | O_CREAT | (access == Access::create ? O_EXCL : 0);  // for Access::replace, lock_and_empty follows
}

Descriptor open_descriptor(const std::string& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666));
}

EntryKind kind_from(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return EntryKind::file;
  if (S_ISDIR(status.st_mode)) return EntryKind::folder;
  if (S_ISFIFO(status.st_mode)) return EntryKind::fifo;
  if (S_ISSOCK(status.st_mode)) return EntryKind::socket;
  return S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) ? EntryKind::device : EntryKind::other;
}

// Returns the kind of an entry whose stat has just failed, by errno.
EntryKind kind_without_status() {
  return errno == ENOENT || errno == ENOTDIR ? EntryKind::missing : EntryKind::other;
}

// Returns the error of a failed open, with the kind of the entry: ENXIO, for instance, comes from a FIFO without a reader.
Opened refused(const std::string& path, int error) {
  struct stat status {};
  return {nullptr, -error, stat(path.c_str(), &status) == 0 ? kind_from(status) : EntryKind::file};
}

// Makes the reads and writes of a file that was opened with O_NONBLOCK wait. Returns the error, also if it is no regular file.
Opened make_regular(const Descriptor& descriptor) {
  struct stat status {};
  if (fstat(descriptor.get(), &status) != 0) return {nullptr, -errno};
  const EntryKind kind = kind_from(status);
  if (kind != EntryKind::file) return {nullptr, kind == EntryKind::folder ? -EISDIR : -EINVAL, kind};
  const int flags = fcntl(descriptor.get(), F_GETFL, 0);
  const bool is_done = flags >= 0 && fcntl(descriptor.get(), F_SETFL, flags & ~O_NONBLOCK) == 0;
  return {nullptr, is_done ? 0 : -errno};
}

// Locks an open file for writing and empties it. Returns 0 or -errno. Returns -EBUSY if another writer holds the lock, or has
// renamed or removed the file since this one opened it.
int lock_and_empty(const Descriptor& descriptor, const std::string& path) {
  if (flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return -EBUSY;
    const bool has_no_locks = errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK;
    if (!has_no_locks) return -errno;
  }
  struct stat held {
  }, named{};
  if (fstat(descriptor.get(), &held) != 0) return -errno;
  const bool has_name = stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  return has_name ? result_of(ftruncate(descriptor.get(), 0)) : -EBUSY;
}

// Turns on direct I/O for an open file. Returns false if the file system has none, or needs blocks larger than 4096 bytes.
bool turn_direct(const Descriptor& descriptor) {
  struct statx status {};
  const bool is_told =
      statx(descriptor.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && status.stx_mask & STATX_DIOALIGN;
  if (is_told) {
    const auto suits = [](uint32_t alignment) { return alignment > 0 && kDirectAlignment % alignment == 0; };
    if (!suits(status.stx_dio_mem_align) || !suits(status.stx_dio_offset_align)) return false;
  }
  const int flags = fcntl(descriptor.get(), F_GETFL, 0);
  return flags >= 0 && fcntl(descriptor.get(), F_SETFL, flags | O_DIRECT) == 0;
}

}  // namespace

Opened PosixFs::open(const std::string& path, const OpenOptions& options) {
  Descriptor descriptor = open_descriptor(path, flags_of(options.access) | O_NONBLOCK);  // never blocks, not even at a FIFO
  if (!descriptor.is_open()) return refused(path, errno);
  if (Opened failed = make_regular(descriptor); failed.error != 0) return failed;
  if (options.access == Access::replace) {
    if (const int error = lock_and_empty(descriptor, path); error != 0) return {nullptr, error};
  }
  int64_t alignment = 1;
  if (options.caching == Caching::direct) {
    if (turn_direct(descriptor)) alignment = kDirectAlignment;
    else
      log_once(
          without_direct_,
          fmt::format("the file system of '{}' has no direct I/O: its files are read and written through the page cache", path));
  }
  std::unique_ptr<PosixQueue> queue;
  if (options.depth > 1) {
    int refused = 0;
    queue = make_uring_queue(descriptor.get(), options.depth, refused);
    if (!queue)
      log_once(without_uring_, fmt::format("io_uring is refused here ({}): files are read and written by one operation at a time",
                                           std::strerror(-refused)));
  }
  if (!queue) queue = make_plain_queue(descriptor.get());
  return {std::make_unique<PosixFile>(std::move(descriptor), alignment, std::move(queue)), 0};
}

int PosixFs::make_folder(const std::string& path) {
  return result_of(mkdir(path.c_str(), 0777));
}

int PosixFs::rename(const std::string& from, const std::string& to) {
  return result_of(std::rename(from.c_str(), to.c_str()));
}

int PosixFs::remove(const std::string& path) {
  return result_of(std::remove(path.c_str()));
}

Listing PosixFs::list(const std::string& folder) {
  std::error_code error;
  Listing listing;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    struct stat status {};
    // An entry that another process has just removed is not an error: its kind is `missing`.
    const EntryKind kind = lstat(it->path().c_str(), &status) == 0 ? kind_from(status) : kind_without_status();
    listing.entries.push_back({it->path().filename().string(), kind});
  }
  listing.error = -error.value();
  return listing;
}

EntryKind PosixFs::kind_of(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? kind_from(status) : kind_without_status();
}

int PosixFs::sync_folder(const std::string& path) {
  const Descriptor descriptor = open_descriptor(path, O_RDONLY | O_DIRECTORY);
  if (!descriptor.is_open()) return -errno;
  const int result = result_of(fsync(descriptor.get()));
  return result == -EINVAL ? 0 : result;  // from network file systems that have no fsync of folders and do not need it
}

int64_t PosixFs::free_bytes(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return -errno;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void PosixFs::log_once(std::once_flag& flag, const std::string& text) {
  std::call_once(flag, [&] { log(LogLevel::info, world_, "io: " + text); });
}

FileSystem& posix_files() {
  static PosixFs files{World()};
  return files;
}

}  // namespace zt::io
