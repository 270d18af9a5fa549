// Communication between the ranks of one group.
//
// All ranks of the group must call each collective in the same order, with matching arguments. Tensors must be contiguous and on
// the backend's device. In the shapes below n is a number of elements and W the number of ranks of the group. With Async::yes the
// caller must keep the tensors alive and must not touch them until work.wait() returns. Several operations can be in flight: they
// run in the order of the calls. Sums follow a fixed binary tree over the rank index; 16-bit types accumulate in fp32.
//
// Threads: only one thread, the rank's, uses a communicator and waits for its Works.
// Errors: Misuse for wrong arguments, before anything is moved. Fault if a peer is gone or an operation times out: do not use the
// communicator again. Aborted if another rank of the run failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/value.h"

namespace zt {

enum class ReduceOp : uint8_t { sum, max, min, product };
constexpr auto words_of(ReduceOp) {
  return std::array{"sum", "max", "min", "product"};
}
enum class Async : uint8_t { no, yes };

// Returns the operation of that name: "sum", "max", "min" or "product". Throws Misuse, with the nearest name, for another.
ReduceOp parse_reduce_op(const std::string& name);

class Channel;  // zt/comm/channel.h

// A handle to a started operation. A default-constructed Work is complete.
class Work {
 public:
  struct State {
    virtual ~State();
    virtual bool done() = 0;         // does not wait; true also after a failure
    virtual void wait() = 0;         // makes the current stream (CPU: the thread) wait for the result; rethrows a failure
    virtual void synchronize() = 0;  // makes the calling thread wait for the result; rethrows a failure
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

// Returns a work that is complete when `work` is and `finish` has run. The first wait for it calls `finish`, after `work` and
// with grad mode off, and rethrows what it throws.
Work then(Work work, std::function<void()> finish);
// Returns a work that is complete when all of them are. Its waits wait for each in order, and rethrow the first failure.
Work all_of(std::vector<Work> works);

class Communicator {
 public:
  virtual ~Communicator();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;     // the axis, for messages: "dp"
  virtual const std::string& backend() const = 0;  // "shm", "mpi", "local", "null", "nccl" ...
  // Returns the device on which tensors must be; nothing if they may be anywhere, as with one rank.
  virtual std::optional<at::Device> device() const = 0;

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
  // Sends in_splits[r] rows (dim 0) of `in` to rank r, and receives out_splits[r] rows of `out` from it. Rows are in the order of
  // ranks; both lists have W numbers. Empty lists mean equal parts. Never in place.
  virtual Work all_to_all(at::Tensor out, at::Tensor in, std::vector<int64_t> out_splits = {},
                          std::vector<int64_t> in_splits = {}, Async async = Async::no) = 0;
  // Sends to, or receives from, rank `peer` of this group. The number of elements and the dtype must be the same on both sides.
  virtual Work send(at::Tensor tensor, int peer, Async async = Async::no) = 0;
  virtual Work recv(at::Tensor tensor, int peer, Async async = Async::no) = 0;
  virtual void barrier() = 0;  // returns after all ranks have called it

  // Several tensors of one dtype in one operation: the same results as one call per tensor, with fewer messages.
  virtual Work all_reduce(std::vector<at::Tensor> inout, ReduceOp op = ReduceOp::sum, Async async = Async::no) = 0;
  virtual Work reduce_scatter(std::vector<at::Tensor> out, std::vector<at::Tensor> in, ReduceOp op = ReduceOp::sum,
                              Async async = Async::no) = 0;
  virtual Work all_gather(std::vector<at::Tensor> out, std::vector<at::Tensor> in, Async async = Async::no) = 0;

  // Returns zeroed memory that this backend communicates without a copy, as do those of `also` that can: other communicators of
  // this rank, whose ranks all make this call with a tensor of the same size. All ranks must make the same calls.
  virtual at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Communicator*>& also = {}) = 0;
  // Returns whether all ranks are on one machine, so that allocate_shared works.
  virtual bool shares_memory() const = 0;
  // Returns one zeroed tensor in memory that all ranks read and write. The callers must order their accesses, for example by
  // barriers. All ranks must make the same calls. Throws Misuse if shares_memory() is false.
  virtual at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) = 0;
  // Returns another communicator over the same ranks. The order of its calls is independent of this one's. Collective.
  virtual std::shared_ptr<Communicator> duplicate(const std::string& name) = 0;
  // Returns this rank's end of a new channel (zt/comm/channel.h) from rank `from` to rank `to`, which holds up to `depth`
  // messages. Collective over these two ranks, in the order of their calls on this communicator. Throws Misuse unless this rank
  // is one of the two, they differ, and depth >= 1.
  virtual std::shared_ptr<Channel> channel(int from, int to, int depth, const std::string& name) = 0;

  // Sets the timeout of an operation. After it, every rank reports which ranks wait in which operation, and the run ends. The
  // default is 10 minutes.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // Waits for all operations in flight, and frees memory of `allocate` that is not used any more.
  virtual void drain() = 0;

  // Returns the values of all ranks, in rank order. For communicators in host memory only, as Axis::control. `what` says what
  // this rank does, for messages. Throws Misuse, on all ranks, if the ranks do different things, or if the value of one of them
  // cannot be written as JSON. Collective.
  std::vector<Value> all_gather_values(const Value& value, const std::string& what = "gathers values");
};

ZT_OBJECT(Communicator)
ZT_OBJECT(Work)

}  // namespace zt
