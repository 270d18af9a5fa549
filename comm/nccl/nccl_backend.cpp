#include "nccl/nccl_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <vector>

#include "backend/checked.h"
#include "core/compare.h"
#include "nccl/calls.h"
#include "nccl/device_tree.h"
#include "nccl/fixed_order.h"
#include "nccl/link.h"
#include "nccl/memory.h"
#include "nccl/nccl_channel.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

at::Tensor bytes_of(const ncclUniqueId& id) {
  const auto bytes = at::empty({static_cast<int64_t>(sizeof(id))}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &id, sizeof(id));
  return bytes;
}

ncclUniqueId id_of(const at::Tensor& bytes) {
  ncclUniqueId id{};
  std::memcpy(&id, bytes.const_data_ptr(), sizeof(id));
  return id;
}

ncclUniqueId make_id(const NcclApi& api) {
  ncclUniqueId id{};
  check_nccl(api, api.get_unique_id(&id), "get_unique_id");
  return id;
}

// Makes NCCL's identifier on rank 0 and sends it to all ranks.
ncclUniqueId share_id(const NcclApi& api, Communicator& host) {
  const auto bytes = bytes_of(host.rank() == 0 ? make_id(api) : ncclUniqueId{});
  host.broadcast(bytes, 0);
  host.barrier();  // if a rank is missing, this times out; NCCL would wait for ever
  return id_of(bytes);
}

// Likewise for the two ranks of a channel, as its first message.
ncclUniqueId share_id(const NcclApi& api, const Group& pair, Channel& channel) {
  if (pair.rank == 1) return id_of(channel.recv().tensors.at(0));
  const ncclUniqueId id = make_id(api);
  channel.send({bytes_of(id)}).wait();
  return id;
}

class NcclWork : public Work::State {
 public:
  NcclWork(std::shared_ptr<Link> link, std::shared_ptr<StartedOperation> started, Operation operation)
      : link_(std::move(link)), started_(std::move(started)), operation_(std::move(operation)) {}
  bool done() override { return link_->is_over(*started_); }
  void wait() override { link_->wait(*started_); }
  void synchronize() override { link_->finish(*started_); }

 private:
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<StartedOperation> started_;
  const Operation operation_;  // keeps the tensors alive
};

class NcclBackend : public Backend {
 public:
  NcclBackend(std::shared_ptr<Communicator> host, std::shared_ptr<Link> link, SumOrder order)
      : host_(std::move(host)),
        link_(std::move(link)),
        order_(order),
        token_(at::zeros({1}, at::device(link_->streams()->device()))) {}

  const Group& group() const override { return link_->group(); }
  const std::string& name() const override { return kName; }
  std::optional<at::Device> device() const override { return link_->streams()->device(); }

  Work submit(Operation operation, Async async) override {
    auto started = start(operation);
    Work work(std::make_shared<NcclWork>(link_, std::move(started), std::move(operation)));
    if (async == Async::no) work.wait();
    return work;
  }

  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Backend*>&) override {
    return allocate_nccl(link_->api(), *link_->streams(), group().name, shape, dtype);
  }
  std::unique_ptr<Backend> duplicate(const std::string& name) override {
    std::shared_ptr<Communicator> host = host_->duplicate(name);
    const ncclUniqueId id = share_id(link_->api(), *host);
    auto link = Link::connect(link_->api(), link_->streams(), group().renamed(name), id);
    auto twin = std::make_unique<NcclBackend>(std::move(host), std::move(link), order_);
    twin->set_timeout(link_->timeout());
    twin->set_check(check_);
    return twin;
  }
  std::shared_ptr<Channel> channel(const ChannelPlan& plan, Communicator&, std::shared_ptr<BlackBox> box) override {
    Group pair = plan.pair(group());
    const auto shapes = host_->channel(plan.from, plan.to, plan.depth, plan.name + "/host");
    const ncclUniqueId id = share_id(link_->api(), pair, *shapes);
    auto link = Link::connect(link_->api(), link_->streams(), pair, id);
    auto data = std::make_unique<NcclBackend>(host_, std::move(link), order_);
    data->link_->set_timeout(link_->timeout());
    const at::Device device = link_->streams()->device();
    return make_nccl_channel(std::move(pair), device, shapes, std::make_shared<CheckedCommunicator>(std::move(data), box));
  }
  void set_timeout(std::chrono::milliseconds timeout) override {
    link_->set_timeout(timeout);
    host_->set_timeout(timeout);
  }
  void set_check(CheckMode mode) override { check_ = mode; }
  void drain() override {
    link_->drain();
    free_retired(link_->api(), *link_->streams());
  }
  void record_in(std::shared_ptr<Ring> ring) override { link_->record_in(std::move(ring)); }

 private:
  inline static const std::string kName = "nccl";
  // Any failure but a Misuse leaves different work on the ranks' streams, so the communicator fails.
  std::shared_ptr<StartedOperation> start(const Operation& operation) {
    try {
      link_->check_usable();
      link_->poll();
      agree(operation);
      check_reducible(operation);
      enqueue(operation);
      return link_->add(operation);
    } catch (const Misuse&) {
      link_->refuse(operation);
      throw;
    } catch (const Aborted& end) {
      link_->refuse(operation);
      link_->fail(end.what());
      throw;
    } catch (const std::exception& error) {
      link_->refuse(operation);
      const std::string why = fmt::format("{} on axis '{}' failed, operation {} of {} on nccl: {}", operation.call.text(group()),
                                          group().name, operation.turn, group().rank_name(group().rank), describe(error));
      link_->fail(why);
      throw Fault(why);
    }
  }

  // NCCL does not notice that calls differ between ranks: it waits for ever or moves wrong data.
  void agree(const Operation& operation) {
    if (group().size() == 1 || !is_collective(operation.kind)) return;
    if (check_ == CheckMode::first && operation.turn >= kCheckedFirst) return;
    compare_calls(calls_of_all(operation.call), group());
  }
  std::vector<Call> calls_of_all(const Call& call) {
    std::vector<Call> calls(static_cast<size_t>(group().size()));
    const auto own = at::zeros({static_cast<int64_t>(sizeof(Call))}, at::kByte);
    const auto all = at::empty({static_cast<int64_t>(sizeof(Call)) * group().size()}, at::kByte);
    std::memcpy(own.mutable_data_ptr(), &call, sizeof(Call));
    host_->all_gather(all, own);
    std::memcpy(calls.data(), all.const_data_ptr(), all.nbytes());
    return calls;
  }

  void check_reducible(const Operation& operation) const {
    if (!is_reduction(operation.kind)) return;
    const at::ScalarType dtype = operation.in[0].scalar_type();
    if (order_ == SumOrder::any) nccl_type(dtype);
    else if (!is_reducible_on_device(dtype, operation.reduce)) {
      misuse("backend 'nccl' in the fixed order has no {} of {}: convert to a signed type that holds the values",
             name_of(operation.reduce), dtype_name(dtype));
    }
  }

  void enqueue(const Operation& operation) {
    const NcclSite site = link_->site();
    link_->begin(operation);
    for (const auto* list : {&operation.in, &operation.out}) {
      for (const auto& tensor : *list) {
        if (tensor.defined()) site.streams.keep_for(site.stream, tensor);
      }
    }
    if (operation.kind == CallKind::barrier) call_nccl(site, {.kind = CallKind::all_reduce, .out = {token_}, .in = {token_}});
    else if (is_reduction(operation.kind) && order_ == SumOrder::fixed) reduce_in_order(site, operation);
    else call_nccl(site, operation);
  }

  const std::shared_ptr<Communicator> host_;
  const std::shared_ptr<Link> link_;
  const SumOrder order_;
  CheckMode check_ = CheckMode::first;
  const at::Tensor token_;  // the operand of a barrier, which is an all_reduce
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Communicator> host, Group group, SumOrder order, LocalRank here) {
  return make_nccl_backend(std::move(host), std::move(group), order, load_nccl(), cuda_streams(here));
}

std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Communicator> host, Group group, SumOrder order, const NcclApi& api,
                                           std::shared_ptr<const StreamApi> streams) {
  auto link = Link::connect(api, std::move(streams), std::move(group), share_id(api, *host));
  return std::make_unique<NcclBackend>(std::move(host), std::move(link), order);
}

}  // namespace zt::comm
