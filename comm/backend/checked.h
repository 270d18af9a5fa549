// The zt::Communicator of every backend. It checks the arguments of a call, makes an Operation of it, records it in the flight
// recorder, and submits it to the backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "checks.h"
#include "recorder/black_box.h"

namespace zt::comm {

class CheckedCommunicator : public Communicator {
 public:
  // Records the calls in `box`; null means in private memory that no other rank reads.
  explicit CheckedCommunicator(std::unique_ptr<Backend> backend, std::shared_ptr<BlackBox> box = nullptr);

  int rank() const override { return backend_->group().rank; }
  int size() const override { return backend_->group().size(); }
  const std::string& name() const override { return backend_->group().name; }
  const std::string& backend() const override { return backend_->name(); }

  Work all_reduce(at::Tensor out, at::Tensor in, ReduceOp op, Async async) override;
  Work reduce_scatter(at::Tensor out, at::Tensor in, ReduceOp op, Async async) override;
  Work all_gather(at::Tensor out, at::Tensor in, Async async) override;
  Work broadcast(at::Tensor inout, int root, Async async) override;
  Work reduce(at::Tensor out, at::Tensor in, int root, ReduceOp op, Async async) override;
  Work gather(at::Tensor out, at::Tensor in, int root, Async async) override;
  Work scatter(at::Tensor out, at::Tensor in, int root, Async async) override;
  Work all_to_all(at::Tensor out, at::Tensor in, std::vector<int64_t> out_splits, std::vector<int64_t> in_splits,
                  Async async) override;
  Work send(at::Tensor tensor, int peer, Async async) override;
  Work recv(at::Tensor tensor, int peer, Async async) override;
  void barrier() override;

  Work all_reduce(std::vector<at::Tensor> inout, ReduceOp op, Async async) override;
  Work reduce_scatter(std::vector<at::Tensor> out, std::vector<at::Tensor> in, ReduceOp op, Async async) override;
  Work all_gather(std::vector<at::Tensor> out, std::vector<at::Tensor> in, Async async) override;

  std::optional<at::Device> device() const override { return backend_->device(); }
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Communicator*>& also) override;
  bool shares_memory() const override { return backend_->shares_memory(); }
  at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) override;
  std::shared_ptr<Communicator> duplicate(const std::string& name) override;
  std::shared_ptr<Channel> channel(int from, int to, int depth, const std::string& name) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void drain() override { backend_->drain(); }

 private:
  Checks checks(CallKind kind) const { return Checks(kind, backend_->group(), backend_->device()); }
  // Checks the pairs of an all_reduce, reduce_scatter or all_gather and submits them as one operation.
  Work submit_pairs(Operation&& operation, Async async);
  Work submit(Operation&& operation, Async async);

  const std::shared_ptr<BlackBox> box_;
  const std::shared_ptr<Ring> ring_;
  const std::unique_ptr<Backend> backend_;
};

}  // namespace zt::comm
