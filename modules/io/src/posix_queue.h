// Queues by which a PosixFile reads and writes: several operations at once by io_uring, one at a time on a thread, or one within
// each call.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "zt/io/file_system.h"

namespace zt::io {

// The descriptors over which a file is striped. Block i of `block` bytes lies in descriptors[i % descriptors.size()].
struct Stripes {
  std::vector<int> descriptors;
  int64_t block = 0;  // meaningless with one descriptor

  struct Place {
    int descriptor;
    int64_t offset;
  };
  // Returns where the byte `offset` of the file lies.
  Place at(int64_t offset) const;
};

// Its functions follow the contract of File. Threads: one at a time. The descriptors have to outlive the queue.
class PosixQueue {
 public:
  virtual ~PosixQueue() = default;
  virtual void submit(const FileOperation& operation) = 0;
  virtual Completion wait() = 0;
  virtual std::optional<Completion> poll() = 0;
  virtual int pin(std::span<std::byte> memory);  // by default it does nothing and returns 0
};

// Returns a queue that performs an operation within submit().
std::unique_ptr<PosixQueue> make_plain_queue(const Stripes& stripes);

// Returns a queue that performs operations on a thread of its own, in the order in which they were submitted.
std::unique_ptr<PosixQueue> make_thread_queue(const Stripes& stripes);

// Returns a queue for up to `depth` operations at once. Returns null and sets `refused` to -errno where the kernel, a container's
// filter or a limit refuses io_uring.
std::unique_ptr<PosixQueue> make_uring_queue(const Stripes& stripes, int depth, int& refused);

}  // namespace zt::io
