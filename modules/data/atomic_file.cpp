#include "atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "zt/error.h"

namespace zt::data {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {
  fd_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("make");
  try {
    take_over();
  } catch (...) {
    close(fd_);
    throw;
  }
}

// Locks the partial file and makes sure that it still has its name: the writer before us may have renamed it meanwhile.
void AtomicFile::take_over() {
  struct stat held {
  }, named{};
  const bool is_ours = flock(fd_, LOCK_EX | LOCK_NB) == 0 && fstat(fd_, &held) == 0 && stat(partial_.c_str(), &named) == 0 &&
                       held.st_ino == named.st_ino;
  if (!is_ours) fault("cannot write '{}': another process is writing it at the moment. Wait for it, or stop it", path_);
  if (ftruncate(fd_, 0) != 0) fail("empty");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  unlink(partial_.c_str());
  close(fd_);
}

void AtomicFile::fail(const char* what) const {
  const int error = errno;
  const char* hint = error == ENOSPC || error == EDQUOT
                         ? ". Free some space and run this again; nothing incomplete is left behind"
                     : error == ENOENT ? ". Make the folder first"
                                       : "";
  fault("cannot {} '{}': {}{}", what, partial_, std::strerror(error), hint);
}

void AtomicFile::append(std::string_view bytes) {
  overwrite(size_, bytes);
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::overwrite(int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
}

void AtomicFile::commit() {
  if (fsync(fd_) != 0) fail("write");
  if (rename(partial_.c_str(), path_.c_str()) != 0) fail("rename");
  close(fd_);
  fd_ = -1;
}

void write_file(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.append(bytes);
  file.commit();
}

}  // namespace zt::data
