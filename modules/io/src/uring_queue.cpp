// The queue that passes operations to the kernel through io_uring.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "posix_queue.h"

namespace zt::io {

namespace {

constexpr int64_t kLargest = int64_t{1} << 30;  // most bytes that one operation moves; a larger one returns a short count
constexpr int64_t kPinned = int64_t{1} << 30;   // most bytes of one registered buffer

class UringQueue : public PosixQueue {
 public:
  UringQueue(Stripes stripes, int depth)
      : stripes_(std::move(stripes)), refused_(io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0)) {}
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
    const auto [descriptor, place] = stripes_.at(operation.offset);
    const auto offset = static_cast<uint64_t>(place);
    const int buffer = buffer_of(operation.memory, bytes);
    const bool is_read = operation.direction == IoDirection::read;
    if (buffer >= 0 && is_read) io_uring_prep_read_fixed(entry, descriptor, operation.memory, bytes, offset, buffer);
    else if (buffer >= 0) io_uring_prep_write_fixed(entry, descriptor, operation.memory, bytes, offset, buffer);
    else if (is_read) io_uring_prep_read(entry, descriptor, operation.memory, bytes, offset);
    else io_uring_prep_write(entry, descriptor, operation.memory, bytes, offset);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(operation.tag));
    io_uring_submit(&ring_);  // entries that stay in the ring are submitted by the next call, by wait() or by poll()
  }

  Completion wait() override {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) != 0) enter();
    return take(entry);
  }

  std::optional<Completion> poll() override {
    io_uring_cqe* entry = nullptr;
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
    if (io_uring_peek_cqe(&ring_, &entry) != 0) return std::nullopt;
    return take(entry);
  }

  int pin(std::span<std::byte> memory) override {
    std::vector<iovec> buffers;
    for (size_t at = 0; at < memory.size(); at += kPinned)
      buffers.push_back({memory.data() + at, std::min<size_t>(kPinned, memory.size() - at)});
    const int result = io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (result == 0) pinned_ = memory;
    return result;
  }

 private:
  // Returns the registered buffer that holds the memory, or -1.
  int buffer_of(const std::byte* memory, int64_t bytes) const {
    const auto first = reinterpret_cast<intptr_t>(memory) - reinterpret_cast<intptr_t>(pinned_.data());
    if (first < 0 || first + bytes > static_cast<int64_t>(pinned_.size())) return -1;
    return first / kPinned == (first + bytes - 1) / kPinned ? static_cast<int>(first / kPinned) : -1;
  }

  Completion take(io_uring_cqe* entry) {
    const Completion done{static_cast<int>(io_uring_cqe_get_data64(entry)), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return done;
  }

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

  const Stripes stripes_;
  std::span<std::byte> pinned_;
  io_uring ring_{};
  const int refused_;
};

}  // namespace

std::unique_ptr<PosixQueue> make_uring_queue(const Stripes& stripes, int depth, int& refused) {
  auto queue = std::make_unique<UringQueue>(stripes, depth);
  refused = queue->refused();
  if (refused != 0) return nullptr;
  return queue;
}

}  // namespace zt::io
