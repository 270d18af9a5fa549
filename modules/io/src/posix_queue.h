// Queues by which a PosixFile reads and writes: several operations at once by io_uring, or one at a time by pread and pwrite.
#pragma once

#include <memory>

#include "zt/io/file_system.h"

namespace zt::io {

// submit() and wait() follow the contract of File. Threads: one at a time. The descriptor has to outlive the queue.
class PosixQueue {
 public:
  virtual ~PosixQueue() = default;
  virtual void submit(const FileOperation& operation) = 0;
  virtual Completion wait() = 0;
};

// Returns a queue that performs an operation within submit().
std::unique_ptr<PosixQueue> make_plain_queue(int descriptor);

// Returns a queue for up to `depth` operations at once. Returns null and sets `refused` to -errno where the kernel, a container's
// filter or a limit refuses io_uring.
std::unique_ptr<PosixQueue> make_uring_queue(int descriptor, int depth, int& refused);

}  // namespace zt::io
