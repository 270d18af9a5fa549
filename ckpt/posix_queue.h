// How a PosixFile moves bytes: several operations at once by io_uring, or one after the other by pread and pwrite.
#pragma once

#include <functional>
#include <memory>

#include "fs.h"

namespace zt::ckpt {

// submit and wait as File has them.
class PosixQueue {
 public:
  virtual ~PosixQueue() = default;
  virtual void submit(const Operation& operation) = 0;
  virtual Completion wait() = 0;
};

// Each operation is done when submit returns.
std::unique_ptr<PosixQueue> make_plain_queue(int descriptor);

// Null where the kernel, a container's filter or a limit refuses io_uring; `refused` is then -errno.
std::unique_ptr<PosixQueue> make_uring_queue(int descriptor, int depth, int& refused);

}  // namespace zt::ckpt
