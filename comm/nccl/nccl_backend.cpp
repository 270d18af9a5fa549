#include "nccl/nccl_backend.h"

#include <cstring>

#include "host/patience.h"
#include "nccl/calls.h"
#include "zt/error.h"

namespace zt::comm {

namespace {

// The communicator handle and what its works share; outlives the backend while a work is held.
class Link {
 public:
  Link(const NcclApi& api, std::shared_ptr<const StreamApi> streams, Group group, const ncclUniqueId& id)
      : api(api), streams(std::move(streams)), stream(this->streams->take_from_pool()), group(std::move(group)) {
    check_nccl(api, api.comm_init_rank(&comm, this->group.size(), id, this->group.rank), "comm_init_rank");
  }
  ~Link() {
    if (comm) api.comm_destroy(comm);
  }
  Link(const Link&) = delete;

  // Ends NCCL's kernels that wait for a peer; later operations are refused.
  void abort() {
    if (comm) api.comm_abort(comm);
    comm = nullptr;
  }

  const NcclApi api;
  const std::shared_ptr<const StreamApi> streams;
  const c10::Stream stream;
  const Group group;
  std::chrono::milliseconds timeout = kDefaultTimeout;
  ncclComm_t comm = nullptr;
};

// Started on the communicator's stream; done when its event is.
class NcclWork : public Work::State {
 public:
  NcclWork(std::shared_ptr<Link> link, Operation operation, uint64_t number)
      : link_(std::move(link)),
        operation_(std::move(operation)),
        number_(number),
        event_(link_->streams->record(link_->stream)) {}
  ~NcclWork() override { link_->streams->destroy(event_); }

  bool done() override { return link_->streams->query(event_); }
  void wait() override { link_->streams->block(event_, link_->streams->current()); }
  void synchronize() override {
    Patience patience(Patience::Style::caller, link_->timeout, [this] { check_peers(); });
    while (!done()) {
      if (!patience.pause()) give_up();
    }
  }

 private:
  std::string where() const {
    return fmt::format("{} of axis '{}' waits in operation {}, {}", link_->group.who(link_->group.rank), link_->group.name,
                       number_, operation_.text(link_->group));
  }
  void check_peers() {
    if (!link_->comm) fault("{}, but the communicator failed before", where());
    ncclResult_t state = ncclSuccess;
    link_->api.comm_get_async_error(link_->comm, &state);
    if (state == ncclSuccess || state == ncclInProgress) return;
    link_->abort();
    fault("{}: NCCL reports {}: a peer may be gone", where(), link_->api.get_error_string(state));
  }
  [[noreturn]] void give_up() {
    link_->abort();
    fault(
        "communication timed out after {} s: {} (backend nccl). Did a peer fail, or take another path? If it only needs longer: "
        "axis:set_timeout(seconds)",
        std::chrono::duration<double>(link_->timeout).count(), where());
  }

  std::shared_ptr<Link> link_;
  const Operation operation_;  // keeps the tensors alive
  const uint64_t number_;
  void* event_;
};

class NcclBackend : public Backend {
 public:
  NcclBackend(std::unique_ptr<Backend> bootstrap, const NcclApi& api, std::shared_ptr<const StreamApi> streams)
      : bootstrap_(std::move(bootstrap)),
        link_(std::make_shared<Link>(api, std::move(streams), bootstrap_->group(), share_id(api))),
        token_(at::zeros({1}, at::device(link_->streams->device()))) {}

  const Group& group() const override { return link_->group; }
  const std::string& name() const override {
    static const std::string name = "nccl";
    return name;
  }
  std::optional<at::Device> device() const override { return link_->streams->device(); }

  Work submit(Operation operation, Async async) override {
    if (!link_->comm) fault("axis '{}': the communicator failed before and cannot be used any more", group().name);
    const Kind kind = operation.kind;
    start(kind == Kind::barrier ? Operation{.kind = Kind::all_reduce, .out = {token_}, .in = {token_}} : operation);
    Work work(std::make_shared<NcclWork>(link_, std::move(operation), operations_++));
    if (async == Async::no) work.wait();
    return work;
  }

  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) override {
    return at::zeros(shape, at::device(link_->streams->device()).dtype(dtype));
  }
  std::unique_ptr<Backend> duplicate(const std::string& name) override {
    auto copy = std::make_unique<NcclBackend>(bootstrap_->duplicate(name), link_->api, link_->streams);
    copy->set_timeout(link_->timeout);
    return copy;
  }
  void set_timeout(std::chrono::milliseconds timeout) override { link_->timeout = timeout; }
  // Everything is on one stream: what is recorded now is done last.
  void drain() override { Work(std::make_shared<NcclWork>(link_, Operation{}, operations_)).synchronize(); }

 private:
  // Rank 0 makes the identifier, the bootstrap carries it.
  ncclUniqueId share_id(const NcclApi& api) {
    ncclUniqueId id{};
    if (bootstrap_->group().rank == 0) check_nccl(api, api.get_unique_id(&id), "get_unique_id");
    const auto bytes = at::empty({sizeof(id)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &id, sizeof(id));
    bootstrap_->submit({.kind = Kind::broadcast, .out = {bytes}, .peer = 0}, Async::no);
    std::memcpy(&id, bytes.const_data_ptr(), sizeof(id));
    return id;
  }

  // Puts the calls on the communicator's stream, behind what the current stream has to do first.
  void start(const Operation& operation) {
    const StreamApi& streams = *link_->streams;
    void* ready = streams.record(streams.current());
    streams.block(ready, link_->stream);
    streams.destroy(ready);
    const size_t count = std::max(operation.in.size(), operation.out.size());
    if (count > 1) check_nccl(link_->api, link_->api.group_start(), "group_start");
    for (size_t i = 0; i < count; ++i) call_nccl(link_->api, operation, i, group(), link_->comm, streams.native(link_->stream));
    if (count > 1) check_nccl(link_->api, link_->api.group_end(), "group_end");
    for (const auto* list : {&operation.in, &operation.out}) {
      for (const auto& tensor : *list) {
        if (tensor.defined()) streams.keep_for(link_->stream, tensor);
      }
    }
  }

  std::unique_ptr<Backend> bootstrap_;
  std::shared_ptr<Link> link_;
  at::Tensor token_;  // what a barrier adds up
  uint64_t operations_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> bootstrap) {
  return make_nccl_backend(std::move(bootstrap), load_nccl(), cuda_streams());
}

std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> bootstrap, const NcclApi& api,
                                           std::shared_ptr<const StreamApi> streams) {
  return std::make_unique<NcclBackend>(std::move(bootstrap), api, std::move(streams));
}

}  // namespace zt::comm
