// Communication between the ranks of one group.
//
// Every collective is called by all ranks of the group in the same order with matching arguments. Tensors are
// contiguous and on the backend's device; a non-contiguous one is a Misuse. n counts elements, W is the group's size.
// With Async::yes the caller keeps the tensors alive and untouched until work.wait(); several may be in flight and they
// run in the order of the calls. Sums follow the fixed binary tree over the rank index, 16-bit types accumulate in fp32.
//
// Threads: one thread uses a communicator (the rank's); Work may be waited for from the same thread only.
// Errors: Misuse for arguments, before anything moved. Fault for a peer that is gone or a time-out: the communicator,
// and in practice the run, is over. Aborted when another rank of the run failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/value.h"

namespace zt {

enum class ReduceOp : uint8_t { sum, max, min, product };
enum class Async : uint8_t { no, yes };

ReduceOp parse_reduce_op(const std::string& name);

// A handle on something started. A default-made Work is complete.
class Work {
 public:
  struct State {
    virtual ~State();
    virtual bool done() = 0;         // no waiting; true also after a failure
    virtual void wait() = 0;         // the current stream (CPU: thread) sees the result afterwards; rethrows the failure
    virtual void synchronize() = 0;  // the host waits; rethrows the failure
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool done() const { return !state_ || state_->done(); }
  void wait() const {
    if (state_) state_->wait();
  }
  void synchronize() const {
    if (state_) state_->synchronize();
  }

 private:
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  virtual ~Communicator();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;     // the axis, for messages: "dp"
  virtual const std::string& backend() const = 0;  // "shm", "mpi", "local", "null", "nccl" ...

  // out: [n], in: [n]. In place iff out is in.
  virtual Work all_reduce(at::Tensor out, at::Tensor in, ReduceOp op = ReduceOp::sum, Async async = Async::no) = 0;
  // out: [n], in: [W * n]. In place iff out is the rank's part of in.
  virtual Work reduce_scatter(at::Tensor out, at::Tensor in, ReduceOp op = ReduceOp::sum, Async async = Async::no) = 0;
  // out: [W * n], in: [n]. In place iff in is the rank's part of out.
  virtual Work all_gather(at::Tensor out, at::Tensor in, Async async = Async::no) = 0;
  // inout: [n], read at root, written elsewhere.
  virtual Work broadcast(at::Tensor inout, int root, Async async = Async::no) = 0;
  // out: [n], written at root only (may be undefined elsewhere); in: [n]. In place iff out is in.
  virtual Work reduce(at::Tensor out, at::Tensor in, int root, ReduceOp op = ReduceOp::sum, Async async = Async::no) = 0;
  // out: [W * n] at root (may be undefined elsewhere); in: [n].
  virtual Work gather(at::Tensor out, at::Tensor in, int root, Async async = Async::no) = 0;
  // out: [n]; in: [W * n] at root (may be undefined elsewhere).
  virtual Work scatter(at::Tensor out, at::Tensor in, int root, Async async = Async::no) = 0;
  // in is cut along dim 0 into in_splits (W numbers) for the ranks, out is filled from them by out_splits; empty splits
  // mean equal parts. Never in place.
  virtual Work all_to_all(at::Tensor out, at::Tensor in, std::vector<int64_t> out_splits = {},
                          std::vector<int64_t> in_splits = {}, Async async = Async::no) = 0;
  virtual Work send(at::Tensor tensor, int peer, Async async = Async::no) = 0;
  virtual Work recv(at::Tensor tensor, int peer, Async async = Async::no) = 0;
  virtual void barrier() = 0;

  // Several tensors of one dtype as one operation: the same results as one call each, fewer messages.
  virtual Work all_reduce(std::vector<at::Tensor> inout, ReduceOp op = ReduceOp::sum, Async async = Async::no) = 0;
  virtual Work reduce_scatter(std::vector<at::Tensor> out, std::vector<at::Tensor> in, ReduceOp op = ReduceOp::sum,
                              Async async = Async::no) = 0;
  virtual Work all_gather(std::vector<at::Tensor> out, std::vector<at::Tensor> in, Async async = Async::no) = 0;

  // Memory that this backend communicates without a copy; zeroed. The same call on every rank.
  virtual at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) = 0;
  // Whether the ranks are on one machine and `allocate_shared` gives them one memory.
  virtual bool shares_memory() const = 0;
  // One tensor that all ranks read and write, zeroed; who writes what and when the others may look, they agree on by barriers.
  // The same call on every rank. Misuse where shares_memory() is false.
  virtual at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) = 0;
  // A further communicator over the same ranks with an order of its own. Collective.
  virtual std::shared_ptr<Communicator> duplicate(const std::string& name) = 0;

  // How long an operation may take before every rank says who waits where and the run ends. Default 10 minutes.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // Waits for everything in flight.
  virtual void drain() = 0;

  // Plain values of all ranks, in rank order. Collective.
  std::vector<Value> all_gather_values(const Value& value);
};

ZT_OBJECT(Communicator)
ZT_OBJECT(Work)

}  // namespace zt
