#include "shm/shm_backend.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "queue/queued_backend.h"
#include "shm/collectives.h"
#include "shm/share.h"
#include "shm/shared_channel.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

static_assert(kMostShmRanks * 2 * sizeof(int64_t) <= kInlineBytes);

// Returns the tensor that other ranks read from this rank; undefined if this rank gives nothing.
at::Tensor source_of(const Operation& operation, int rank) {
  const bool from_root = operation.kind == CallKind::broadcast || operation.kind == CallKind::scatter;
  if (from_root && rank != operation.peer) return {};
  return operation.kind == CallKind::broadcast ? operation.out[0] : operation.in[0];
}

class ShmBackend : public QueuedBackend {
 public:
  ShmBackend(std::unique_ptr<Team> team, std::function<void()> check_abort)
      : team_(std::move(team)), windows_(*team_), check_abort_(std::move(check_abort)) {}
  ~ShmBackend() override { close(); }

  const Group& group() const override { return team_->group(); }
  const std::string& name() const override { return kName; }

  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Backend*>& also) override {
    const size_t bytes = static_cast<size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
    std::shared_ptr<SharedMemory> own;
    run_in_turn([&](WaitPolicy& policy) {
      team_->set_wait_policy(policy);
      own = windows_.create(bytes);
    });
    for (Backend* other : also) {
      if (auto* shm = dynamic_cast<ShmBackend*>(other)) shm->adopt(own);
    }
    own->hide();
    // When the tensor is destroyed, its pages are freed, also where other ranks map them.
    return at::from_blob(
        own->data(), shape, [own](void*) { own->discard(); }, at::TensorOptions().dtype(dtype));
  }

  bool shares_memory() const override { return true; }
  at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) override {
    const size_t bytes = static_cast<size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
    std::shared_ptr<std::vector<SharedMemory>> memories;
    run_in_turn([&](WaitPolicy& policy) {
      team_->set_wait_policy(policy);
      const size_t mine = team_->rank() == 0 ? std::max<size_t>(bytes, 1) : 0;
      memories = std::make_shared<std::vector<SharedMemory>>(share(*team_, mine, Pages::on_demand));
    });
    return at::from_blob(
        memories->front().data(), shape, [memories](void*) {}, at::TensorOptions().dtype(dtype));
  }

  std::unique_ptr<Backend> duplicate(const std::string& name) override {
    std::unique_ptr<Backend> copy;
    run_in_turn([&](WaitPolicy& policy) {
      team_->set_wait_policy(policy);
      auto memories = share(*team_, team_->rank() == 0 ? Team::bytes_for(team_->size()) : 0, Pages::on_demand);
      const auto memory = std::make_shared<SharedMemory>(std::move(memories[0]));
      copy = std::make_unique<ShmBackend>(std::make_unique<Team>(group().renamed(name), memory, policy), check_abort_);
      copy->set_timeout(timeout());
      copy->set_check(check());
    });
    return copy;
  }

  std::shared_ptr<Channel> channel(const ChannelPlan& plan, Communicator& whole, std::shared_ptr<BlackBox> box) override {
    return make_shared_channel(plan, whole, plan.pair(group()), {name(), check_abort_, timeout()}, std::move(box));
  }

 protected:
  void check_abort() const override { check_abort_(); }

  void run_single(const Operation& operation, WaitPolicy& policy) override {
    team_->set_wait_policy(policy);
    if (operation.kind == CallKind::send) return send(*team_, windows_, operation);
    if (operation.kind == CallKind::recv) return recv(*team_, windows_, operation);
    const bool fits = is_inline(operation, team_->size());
    announce(operation, fits);
    team_->enter();
    if (operation.kind == CallKind::all_reduce) return run_all_reduce(operation, fits);
    if (operation.kind == CallKind::barrier) return;
    const ReadList list = make_read_list(operation, *team_);
    if (are_sources_inline(operation, fits)) pull_inline(*team_, list);
    else if (are_sources_shared(operation)) pull_direct(*team_, windows_, list);
    else pull_staged(*team_, list);
  }

 private:
  inline static const std::string kName = "shm";
  void adopt(const std::shared_ptr<SharedMemory>& memory) {
    run_in_turn([&](WaitPolicy& policy) {
      team_->set_wait_policy(policy);
      windows_.adopt(memory);
    });
  }

  void announce(const Operation& operation, bool fits) {
    Notice& notice = team_->my_notice();
    notice.call = operation.call;
    if (operation.kind == CallKind::barrier) return;
    const at::Tensor source = source_of(operation, team_->rank());
    const bool is_all_to_all = operation.kind == CallKind::all_to_all;
    if (fits && source.defined() && source.nbytes() > 0) std::memcpy(notice.data.data(), bytes_of(source), source.nbytes());
    if (fits && !is_all_to_all) return;
    notice.is_inline = fits;
    notice.in = source.defined() ? windows_.place_of(source.const_data_ptr()) : SharedPlace{};
    notice.out = operation.kind == CallKind::all_reduce ? windows_.place_of(operation.out[0].const_data_ptr()) : SharedPlace{};
    if (is_all_to_all) write_splits(operation, notice);
  }

  // In an all_to_all the data of one rank may fit into its notice and the data of another may not.
  bool are_sources_inline(const Operation& operation, bool fits) const {
    if (operation.kind != CallKind::all_to_all) return fits;
    bool are_inline = true;
    for (int r = 0; r < team_->size(); ++r) are_inline &= team_->notice(r).is_inline;
    return are_inline;
  }

  // The result is equal on all ranks, as it depends on the notices alone.
  bool are_sources_shared(const Operation& operation) const {
    if (team_->size() == 1) return true;
    if (operation.kind == CallKind::broadcast || operation.kind == CallKind::scatter)
      return team_->notice(operation.peer).in.window >= 0;
    for (int r = 0; r < team_->size(); ++r) {
      if (team_->notice(r).in.window < 0) return false;
    }
    return true;
  }

  void run_all_reduce(const Operation& operation, bool fits) {
    if (fits) return all_reduce_inline(*team_, operation);
    bool is_shared = are_sources_shared(operation);
    for (int r = 0; r < team_->size() && team_->size() > 1; ++r) is_shared &= team_->notice(r).out.window >= 0;
    if (is_shared) all_reduce_direct(*team_, windows_, operation);
    else all_reduce_staged(*team_, operation);
  }

  std::unique_ptr<Team> team_;
  Windows windows_;
  std::function<void()> check_abort_;
};

// Creates memory on rank 0 and maps it on all ranks. A failure on one rank throws Fault on all.
std::shared_ptr<SharedMemory> share_memory(Communicator& first_contact, int size) {
  SharedMemory memory;
  std::string complaint;
  const auto attempt = [&](auto call) {
    try {
      call();
    } catch (const Fault& failure) {
      complaint = failure.what();
    }
  };
  if (first_contact.rank() == 0) attempt([&] { memory = SharedMemory::create(Team::bytes_for(size), Pages::on_demand); });
  MemoryAddress address = memory.address();
  first_contact.broadcast(at::from_blob(&address, {sizeof(address)}, at::kByte), 0);
  if (first_contact.rank() != 0 && address.bytes > 0) attempt([&] { memory = SharedMemory::open(address); });
  const auto complaints = first_contact.all_gather_values(Value(complaint));
  for (const Value& other : complaints) {
    if (const auto* text = other.get_if<std::string>(); text && !text->empty()) fault("the ranks cannot share memory: {}", *text);
  }
  memory.hide();
  return std::make_shared<SharedMemory>(std::move(memory));
}

}  // namespace

std::unique_ptr<Backend> make_shm_backend(Communicator& first_contact, Group group, std::function<void()> check_abort) {
  if (group.size() > kMostShmRanks)
    misuse("backend 'shm' serves up to {} ranks per machine, not {}: take 'mpi'", kMostShmRanks, group.size());
  const auto memory = share_memory(first_contact, group.size());
  WaitPolicy policy(WaitPolicy::Style::caller, kDefaultTimeout, check_abort);
  auto team = std::make_unique<Team>(std::move(group), memory, policy);
  return std::make_unique<ShmBackend>(std::move(team), std::move(check_abort));
}

}  // namespace zt::comm
