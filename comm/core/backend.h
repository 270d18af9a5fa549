// What a way to communicate provides: operations that were checked already. `Checked` makes a zt::Communicator of it.
//
// Threads: as zt::Communicator. Errors: Fault and Aborted; arguments are the decorator's affair.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "group.h"
#include "operation.h"
#include "recorder/ring.h"
#include "zt/comm/comm.h"

namespace zt::comm {

constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(10);

// Which operations are compared across the ranks before anything moves.
enum class CheckMode : uint8_t { first, full };
constexpr uint64_t kCheckedFirst = 100;  // CheckMode::first: collectives of a communicator, and messages of a pair of ranks

// fixed: sums run along the tree of NUMERICS, the same bits on every backend. any: as the backend likes.
enum class SumOrder : uint8_t { fixed, any };

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Group& group() const = 0;
  virtual const std::string& name() const = 0;
  // Where tensors have to be; nothing: anywhere.
  virtual std::optional<at::Device> device() const = 0;

  // Runs or starts an operation, in the order of the calls. With Async::no it has run for the caller's stream on return.
  virtual Work submit(Operation operation, Async async) = 0;
  virtual at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) = 0;
  // Where `shares_memory`: one tensor for all ranks. Collective.
  virtual bool shares_memory() const { return false; }
  virtual at::Tensor allocate_shared(at::IntArrayRef, at::ScalarType) { return {}; }
  // Collective.
  virtual std::unique_ptr<Backend> duplicate(const std::string& name) = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  virtual void set_check(CheckMode mode) = 0;
  virtual void drain() = 0;

  // Where the operations that are submitted, whose numbers are the ring's, say that they run and end. Before the first of them.
  virtual void record_in(std::shared_ptr<Ring> ring) = 0;
};

}  // namespace zt::comm
