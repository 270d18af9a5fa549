#include "checked.h"

#include "zt/base/error.h"

namespace zt::comm {

namespace {

void check_pair(const Checks& checks, const Operation& operation, const at::Tensor& out, const at::Tensor& in,
                const Group& group) {
  checks.tensor("in", in);
  checks.tensor("out", out);
  checks.same_dtype(out, in);
  switch (operation.kind) {
    case CallKind::reduce_scatter:
      checks.counts("in", in, "out", out, group.size());
      checks.overlap("in", in, "out", out, group.rank);
      break;
    case CallKind::all_gather:
      checks.counts("out", out, "in", in, group.size());
      checks.overlap("out", out, "in", in, group.rank);
      break;
    default:
      checks.counts("out", out, "in", in, 1);
      checks.overlap("out", out, "in", in, 0);
  }
  if (operation.kind != CallKind::all_gather) checks.reducible(in);
}

}  // namespace

CheckedCommunicator::CheckedCommunicator(std::unique_ptr<Backend> backend, std::shared_ptr<BlackBox> box)
    : box_(std::move(box)), ring_(open_ring(box_, backend->group(), backend->name())), backend_(std::move(backend)) {
  backend_->record_in(ring_);
}

Work CheckedCommunicator::submit(Operation&& operation, Async async) {
  operation.call = call_of(operation);
  record_call(*ring_, operation);
  return backend_->submit(std::move(operation), async);
}

Work CheckedCommunicator::submit_pairs(Operation&& operation, Async async) {
  const Checks check = checks(operation.kind);
  check.list(operation.out, operation.in);
  for (size_t i = 0; i < operation.in.size(); ++i)
    check_pair(check, operation, operation.out[i], operation.in[i], backend_->group());
  if (operation.in.empty()) return Work();
  return submit(std::move(operation), async);
}

Work CheckedCommunicator::all_reduce(at::Tensor out, at::Tensor in, ReduceOp op, Async async) {
  return submit_pairs({.kind = CallKind::all_reduce, .out = std::move(out), .in = std::move(in), .reduce = op}, async);
}

Work CheckedCommunicator::reduce_scatter(at::Tensor out, at::Tensor in, ReduceOp op, Async async) {
  return submit_pairs({.kind = CallKind::reduce_scatter, .out = std::move(out), .in = std::move(in), .reduce = op}, async);
}

Work CheckedCommunicator::all_gather(at::Tensor out, at::Tensor in, Async async) {
  return submit_pairs({.kind = CallKind::all_gather, .out = std::move(out), .in = std::move(in)}, async);
}

Work CheckedCommunicator::all_reduce(std::vector<at::Tensor> inout, ReduceOp op, Async async) {
  return submit_pairs({.kind = CallKind::all_reduce, .out = inout, .in = inout, .reduce = op}, async);
}

Work CheckedCommunicator::reduce_scatter(std::vector<at::Tensor> out, std::vector<at::Tensor> in, ReduceOp op, Async async) {
  return submit_pairs({.kind = CallKind::reduce_scatter, .out = out, .in = in, .reduce = op}, async);
}

Work CheckedCommunicator::all_gather(std::vector<at::Tensor> out, std::vector<at::Tensor> in, Async async) {
  return submit_pairs({.kind = CallKind::all_gather, .out = out, .in = in}, async);
}

Work CheckedCommunicator::broadcast(at::Tensor inout, int root, Async async) {
  const Checks check = checks(CallKind::broadcast);
  check.rank("root", root);
  check.tensor("inout", inout);
  return submit({.kind = CallKind::broadcast, .out = std::move(inout), .peer = root}, async);
}

Work CheckedCommunicator::reduce(at::Tensor out, at::Tensor in, int root, ReduceOp op, Async async) {
  const Checks check = checks(CallKind::reduce);
  check.rank("root", root);
  check.tensor("in", in);
  check.reducible(in);
  Operation operation{.kind = CallKind::reduce, .out = out, .in = in, .reduce = op, .peer = root};
  if (rank() == root) check_pair(check, operation, out, in, backend_->group());
  return submit(std::move(operation), async);
}

Work CheckedCommunicator::gather(at::Tensor out, at::Tensor in, int root, Async async) {
  const Checks check = checks(CallKind::gather);
  check.rank("root", root);
  check.tensor("in", in);
  if (rank() == root) {
    check.tensor("out", out);
    check.same_dtype(out, in);
    check.counts("out", out, "in", in, size());
    check.overlap("out", out, "in", in, -1);
  }
  return submit({.kind = CallKind::gather, .out = out, .in = in, .peer = root}, async);
}

Work CheckedCommunicator::scatter(at::Tensor out, at::Tensor in, int root, Async async) {
  const Checks check = checks(CallKind::scatter);
  check.rank("root", root);
  check.tensor("out", out);
  if (rank() == root) {
    check.tensor("in", in);
    check.same_dtype(out, in);
    check.counts("in", in, "out", out, size());
    check.overlap("in", in, "out", out, -1);
  }
  return submit({.kind = CallKind::scatter, .out = out, .in = in, .peer = root}, async);
}

Work CheckedCommunicator::all_to_all(at::Tensor out, at::Tensor in, std::vector<int64_t> out_splits,
                                     std::vector<int64_t> in_splits, Async async) {
  const Checks check = checks(CallKind::all_to_all);
  check.tensor("in", in);
  check.tensor("out", out);
  check.same_dtype(out, in);
  check.overlap("out", out, "in", in, -1);
  Operation operation{.kind = CallKind::all_to_all, .out = out, .in = in};
  operation.out_splits = check.splits("out", out, out_splits);
  operation.in_splits = check.splits("in", in, in_splits);
  const int64_t kept = operation.in_splits[static_cast<size_t>(rank())],
                wanted = operation.out_splits[static_cast<size_t>(rank())];
  if (kept != wanted) {
    misuse("{}: this rank's own part has {} elements in 'in' and {} in 'out': give splits with the same number", check.where(),
           kept, wanted);
  }
  return submit(std::move(operation), async);
}

Work CheckedCommunicator::send(at::Tensor tensor, int peer, Async async) {
  const Checks check = checks(CallKind::send);
  check.peer(peer);
  check.tensor("tensor", tensor);
  return submit({.kind = CallKind::send, .in = std::move(tensor), .peer = peer}, async);
}

Work CheckedCommunicator::recv(at::Tensor tensor, int peer, Async async) {
  const Checks check = checks(CallKind::recv);
  check.peer(peer);
  check.tensor("tensor", tensor);
  return submit({.kind = CallKind::recv, .out = std::move(tensor), .peer = peer}, async);
}

void CheckedCommunicator::barrier() {
  submit({.kind = CallKind::barrier}, Async::no).synchronize();
}

at::Tensor CheckedCommunicator::allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Communicator*>& also) {
  check_allocation(backend_->group(), shape, dtype);
  std::vector<Backend*> others;
  for (Communicator* other : also) {
    if (auto* checked = dynamic_cast<CheckedCommunicator*>(other); checked && checked != this)
      others.push_back(checked->backend_.get());
  }
  return backend_->allocate(shape, dtype, others);
}

at::Tensor CheckedCommunicator::allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) {
  check_allocation(backend_->group(), shape, dtype);
  if (!shares_memory()) {
    misuse("axis '{}' uses backend '{}', which has no memory shared by its ranks: use backend = \"shm\" on one machine", name(),
           backend());
  }
  return backend_->allocate_shared(shape, dtype);
}

std::shared_ptr<Communicator> CheckedCommunicator::duplicate(const std::string& name) {
  return std::make_shared<CheckedCommunicator>(backend_->duplicate(name), box_);
}

std::shared_ptr<Channel> CheckedCommunicator::channel(int from, int to, int depth, const std::string& name) {
  const ChannelPlan plan{from, to, depth, name};
  check_channel(backend_->group(), plan);
  return backend_->channel(plan, *this, box_);
}

void CheckedCommunicator::set_timeout(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) misuse("the time-out of axis '{}' must be above 0, not {} ms", name(), timeout.count());
  backend_->set_timeout(timeout);
}

}  // namespace zt::comm
