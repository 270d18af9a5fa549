#include "zt/io/posix_fs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "posix_queue.h"
#include "zt/io/io_errors.h"
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

// An open file: its descriptors, several if it is striped, and the queue that performs reads and writes.
class PosixFile : public File {
 public:
  PosixFile(std::vector<Descriptor> descriptors, int64_t alignment, std::unique_ptr<PosixQueue> queue)
      : descriptors_(std::move(descriptors)), alignment_(alignment), queue_(std::move(queue)) {}

  int64_t alignment() const override { return alignment_; }
  void submit(const FileOperation& operation) override { queue_->submit(operation); }
  Completion wait() override { return queue_->wait(); }
  std::optional<Completion> poll() override { return queue_->poll(); }
  int pin(std::span<std::byte> memory) override { return queue_->pin(memory); }

  int64_t size() override {
    struct stat status {};
    if (is_striped()) return -EOPNOTSUPP;
    return fstat(descriptor(), &status) == 0 ? status.st_size : -errno;
  }
  int truncate(int64_t bytes) override { return is_striped() ? -EOPNOTSUPP : result_of(ftruncate(descriptor(), bytes)); }
  int reserve(int64_t bytes) override { return is_striped() ? -EOPNOTSUPP : result_of(fallocate(descriptor(), 0, 0, bytes)); }
  int sync() override { return is_striped() ? -EOPNOTSUPP : result_of(fsync(descriptor())); }

  // Gives the descriptors away. Only the destructor may be called afterwards.
  std::vector<Descriptor> take_descriptors() {
    queue_.reset();
    return std::move(descriptors_);
  }

 private:
  bool is_striped() const { return descriptors_.size() > 1; }
  int descriptor() const { return descriptors_.front().get(); }

  std::vector<Descriptor> descriptors_;
  const int64_t alignment_;
  std::unique_ptr<PosixQueue> queue_;  // declared last: it uses the descriptors
};

int flags_of(Access access) {
  if (access == Access::read) return O_RDONLY;
  if (access == Access::scratch) return O_RDWR | O_CREAT | O_EXCL;      // open_scratch removes the name
  return O_WRONLY | O_CREAT | (access == Access::create ? O_EXCL : 0);  // for Access::replace, lock_and_empty follows
}

Descriptor open_descriptor(const std::string& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666));
}

// Opens a file without a name in the folder of `path`. Where the file system has none, the file has the name `path` for a moment.
Descriptor open_scratch(const std::string& path) {
  Descriptor unnamed = open_descriptor(folder_of(path), O_RDWR | O_TMPFILE);
  const bool has_none = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT;
  if (unnamed.is_open() || !has_none) return unnamed;
  Descriptor named = open_descriptor(path, flags_of(Access::scratch));
  if (named.is_open() && unlink(path.c_str()) != 0) return Descriptor(-1);
  return named;
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
  const bool is_scratch = options.access == Access::scratch;
  // Never blocks, not even at a FIFO.
  Descriptor descriptor = is_scratch ? open_scratch(path) : open_descriptor(path, flags_of(options.access) | O_NONBLOCK);
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
  const Stripes stripes{{descriptor.get()}};
  std::vector<Descriptor> descriptors;
  descriptors.push_back(std::move(descriptor));
  return {std::make_unique<PosixFile>(std::move(descriptors), alignment, make_queue(stripes, options.depth)), 0};
}

std::unique_ptr<PosixQueue> PosixFs::make_queue(const Stripes& stripes, int depth) {
  if (depth == 1) return make_plain_queue(stripes);
  int refused = 0;
  auto queue = make_uring_queue(stripes, depth, refused);
  if (queue) return queue;
  log_once(without_uring_, fmt::format("io_uring is refused here ({}): files are read and written by one operation at a time",
                                       std::strerror(-refused)));
  return make_thread_queue(stripes);
}

std::unique_ptr<File> PosixFs::stripe(std::vector<std::unique_ptr<File>> files, int64_t block, int depth) {
  Stripes stripes{{}, block};
  std::vector<Descriptor> descriptors;
  int64_t alignment = 1;
  for (const auto& file : files) {
    auto& part = dynamic_cast<PosixFile&>(*file);
    alignment = std::max(alignment, part.alignment());
    for (Descriptor& each : part.take_descriptors()) {
      stripes.descriptors.push_back(each.get());
      descriptors.push_back(std::move(each));
    }
  }
  return std::make_unique<PosixFile>(std::move(descriptors), alignment, make_queue(stripes, depth));
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
