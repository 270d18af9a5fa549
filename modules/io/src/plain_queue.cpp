#include <unistd.h>

#include <cerrno>
#include <deque>

#include "posix_queue.h"

namespace zt::io {

namespace {

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

}  // namespace

std::unique_ptr<PosixQueue> make_plain_queue(int descriptor) {
  return std::make_unique<PlainQueue>(descriptor);
}

}  // namespace zt::io
