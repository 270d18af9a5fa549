// The interface of a backend. CheckedCommunicator turns a backend into a zt::Communicator and checks all arguments.
//
// Threads: as zt::Communicator. Errors: Fault and Aborted.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "core/group.h"
#include "core/operation.h"
#include "recorder/ring.h"
#include "zt/comm/channel.h"
#include "zt/comm/comm.h"

namespace zt::comm {

constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(10);

// Which operations are compared across the ranks before data moves: the first kCheckedFirst, or all.
enum class CheckMode : uint8_t { first, full };
constexpr uint64_t kCheckedFirst = 100;  // collectives per communicator, and messages per pair of ranks

// fixed: sums follow the tree of reduce_tree.h and have the same bits on every backend. any: the backend chooses the order.
enum class SumOrder : uint8_t { fixed, any };

class BlackBox;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Group& group() const = 0;
  virtual const std::string& name() const = 0;
  // Returns the device that tensors must be on; nullopt means any device.
  virtual std::optional<at::Device> device() const = 0;

  // Runs or starts an operation. Operations run in the order of the calls. With Async::no, work that the caller puts on its
  // current stream after the return sees the result.
  virtual Work submit(Operation operation, Async async) = 0;
  // As Communicator::allocate. A backend that shares no memory with `also` ignores them.
  virtual at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Backend*>& also = {}) = 0;
  virtual bool shares_memory() const { return false; }
  // Returns one tensor that all ranks share. Requires shares_memory(). Collective.
  virtual at::Tensor allocate_shared(at::IntArrayRef, at::ScalarType) { return {}; }
  // Returns a backend over the same ranks with its own order of operations. Collective.
  virtual std::unique_ptr<Backend> duplicate(const std::string& name) = 0;
  // Makes this rank's end of a channel. The arguments are checked. whole: the communicator of this backend, over which the two
  // ranks find each other. box: as for CheckedCommunicator. Collective over the two ranks.
  virtual std::shared_ptr<Channel> channel(const ChannelPlan& plan, Communicator& whole, std::shared_ptr<BlackBox> box) = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  virtual void set_check(CheckMode mode) = 0;
  virtual void drain() = 0;

  // Records the start and the end of every submitted operation in `ring`, which gave the operations their numbers. Call it before
  // the first submit.
  virtual void record_in(std::shared_ptr<Ring> ring) = 0;
};

}  // namespace zt::comm
