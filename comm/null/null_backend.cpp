#include "null/null_backend.h"

#include "channel/checked_channel.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

// Returns a flat view. The counts of the operation were checked before.
at::Tensor flat_view(const at::Tensor& tensor) {
  return tensor.detach().reshape({-1});
}
at::Tensor own_part(const at::Tensor& tensor, const Group& group) {
  const int64_t part = tensor.numel() / group.size();
  return flat_view(tensor).narrow(0, group.rank * part, part);
}

void run(CallKind kind, const at::Tensor& out, const at::Tensor& in, const Group& group) {
  if (!out.defined() || out.numel() == 0) return;
  switch (kind) {
    case CallKind::all_reduce:
    case CallKind::reduce:
      flat_view(out).copy_(flat_view(in));
      return;
    case CallKind::reduce_scatter:
      flat_view(out).copy_(own_part(in, group));
      return;
    case CallKind::all_gather:
    case CallKind::gather:
      out.detach().reshape({group.size(), -1}).copy_(flat_view(in.clone()));
      return;
    case CallKind::scatter:
      if (in.defined()) flat_view(out).copy_(own_part(in, group));
      else out.detach().zero_();
      return;
    case CallKind::all_to_all:
    case CallKind::recv:
      out.detach().zero_();
      return;
    case CallKind::broadcast:
    case CallKind::send:
    case CallKind::barrier:
      return;
  }
}

class NullChannel : public CheckedChannel {
 public:
  using CheckedChannel::CheckedChannel;

 protected:
  Work put(std::vector<at::Tensor>) override { return Work(); }
  Received take() override { return {}; }
};

class NullBackend : public Backend {
 public:
  NullBackend(Group group, bool shares_memory) : group_(std::move(group)), shares_memory_(shares_memory) {}
  const Group& group() const override { return group_; }
  const std::string& name() const override { return kName; }
  std::optional<at::Device> device() const override { return std::nullopt; }
  Work submit(Operation operation, Async) override {
    for (size_t i = 0; i < operation.out.size(); ++i) {
      run(operation.kind, operation.out[i], i < operation.in.size() ? operation.in[i] : at::Tensor(), group_);
    }
    return Work();
  }
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Backend*>&) override {
    return large_zeros(shape, dtype);
  }
  bool shares_memory() const override { return shares_memory_; }
  at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) override { return large_zeros(shape, dtype); }
  std::unique_ptr<Backend> duplicate(const std::string& name) override {
    return make_null_backend(group_.renamed(name), shares_memory_);
  }
  std::shared_ptr<Channel> channel(const ChannelPlan& plan, Communicator&, std::shared_ptr<BlackBox>) override {
    return std::make_shared<NullChannel>(plan.pair(group_), plan.depth, device());
  }
  void set_timeout(std::chrono::milliseconds) override {}
  void set_check(CheckMode) override {}
  void drain() override {}
  void record_in(std::shared_ptr<Ring>) override {}

 private:
  inline static const std::string kName = "null";
  Group group_;
  bool shares_memory_;
};

}  // namespace

std::unique_ptr<Backend> make_null_backend(Group group, bool shares_memory) {
  return std::make_unique<NullBackend>(std::move(group), shares_memory);
}

}  // namespace zt::comm
