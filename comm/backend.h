// What a way to communicate provides: operations that were checked already. `Checked` makes a zt::Communicator of it.
//
// A decorator of this interface sees every operation as data, before and after: the place for a recorder.
// Threads: as zt::Communicator. Errors: Fault and Aborted; arguments are the decorator's affair.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "group.h"
#include "operation.h"
#include "zt/comm.h"

namespace zt::comm {

constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(10);

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
  // Collective.
  virtual std::unique_ptr<Backend> duplicate(const std::string& name) = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  virtual void drain() = 0;
};

}  // namespace zt::comm
