#include "posix_queue.h"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

namespace zt::io {

namespace {

constexpr int64_t kLargest = int64_t{1} << 30;  // most bytes that one operation moves; a larger one returns a short count

// Performs each operation within submit(), by pread or pwrite.
class PlainQueue : public PosixQueue {
 public:
  explicit PlainQueue(int descriptor) : descriptor_(descriptor) {}

  void submit(const FileOperation& operation) override {
    const auto bytes = static_cast<size_t>(operation.bytes);
    const ssize_t moved = operation.direction == IoDirection::read
                              ? pread(descriptor_, operation.memory, bytes, operation.offset)
                              : pwrite(descriptor_, operation.memory, bytes, operation.offset);
    done_.push_back({operation.tag, moved < 0 ? -errno : moved});
  }

  Completion wait() override {
    const Completion first = done_.front();
    done_.pop_front();
    return first;
  }

 private:
  const int descriptor_;
  std::deque<Completion> done_;
};

// Passes operations to the kernel through io_uring.
class UringQueue : public PosixQueue {
 public:
  UringQueue(int descriptor, int depth)
      : descriptor_(descriptor), refused_(io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0)) {}
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override {
    if (refused_ == 0) io_uring_queue_exit(&ring_);
  }

  // Returns 0, or -errno if the kernel refused the ring and the queue is unusable.
  int refused() const { return refused_; }

  void submit(const FileOperation& operation) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto bytes = static_cast<unsigned>(std::min(operation.bytes, kLargest));
    const auto offset = static_cast<uint64_t>(operation.offset);
    if (operation.direction == IoDirection::read) {
      io_uring_prep_read(entry, descriptor_, operation.memory, bytes, offset);
    } else {
      io_uring_prep_write(entry, descriptor_, operation.memory, bytes, offset);
    }
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(operation.tag));
    io_uring_submit(&ring_);  // entries that stay in the ring are submitted by the next call or by wait()
  }

  Completion wait() override {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) != 0) enter();
    const Completion done{static_cast<int>(io_uring_cqe_get_data64(entry)), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return done;
  }

 private:
  void enter() {
    const int result = io_uring_submit_and_wait(&ring_, 1);
    if (result >= 0 || result == -EINTR) return;
    if (result == -EAGAIN || result == -EBUSY) {  // the kernel is short of memory: try again
      std::this_thread::yield();
      return;
    }
    // The kernel may still write to the caller's memory, and there is no way to wait for its end: continuing would be unsafe.
    std::fprintf(stderr, "io_uring_enter: %s\n", std::strerror(-result));
    std::abort();
  }

  const int descriptor_;
  io_uring ring_{};
  const int refused_;
};

}  // namespace

std::unique_ptr<PosixQueue> make_plain_queue(int descriptor) {
  return std::make_unique<PlainQueue>(descriptor);
}

std::unique_ptr<PosixQueue> make_uring_queue(int descriptor, int depth, int& refused) {
  auto queue = std::make_unique<UringQueue>(descriptor, depth);
  refused = queue->refused();
  if (refused != 0) return nullptr;
  return queue;
}

}  // namespace zt::io
