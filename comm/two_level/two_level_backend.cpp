#include "two_level/two_level_backend.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/compare.h"
#include "queue/queued_backend.h"
#include "two_level/collectives.h"

namespace zt::comm {

namespace {

// Bytes up to which an operation goes to `flat`: one round over all ranks is faster than two or three dependent steps.
// (`flat` takes one round up to 64 KiB over all ranks, that is up to 2 KiB for 32 ranks.)
constexpr size_t kShort = size_t{2} << 10;

bool is_for_two_levels(const Operation& operation) {
  const bool is_known = operation.kind == CallKind::all_reduce || operation.kind == CallKind::reduce_scatter ||
                        operation.kind == CallKind::all_gather;
  return is_known && std::max(operation.in[0].nbytes(), operation.out[0].nbytes()) > kShort;
}

// Threads: the levels are used by the thread that runs an operation or a task of the queue, so by one thread at a time.
class TwoLevelBackend : public QueuedBackend {
 public:
  TwoLevelBackend(Levels levels, Group group, SumOrder order, std::function<void()> check_abort)
      : levels_(std::move(levels)), group_(std::move(group)), order_(order), check_abort_(std::move(check_abort)) {}
  ~TwoLevelBackend() override { close(); }

  const Group& group() const override { return group_; }
  const std::string& name() const override { return kName; }

  // Returns a window that the ranks of the node share.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Backend*>&) override {
    at::Tensor tensor;
    run_in_turn([&](WaitPolicy&) { tensor = levels_.inside->allocate(shape, dtype); });
    return tensor;
  }

  std::unique_ptr<Backend> duplicate(const std::string& name) override {
    std::unique_ptr<Backend> copy;
    run_in_turn([&](WaitPolicy&) {
      Levels levels{levels_.inside->duplicate(name + "/inside"), levels_.across->duplicate(name + "/across"),
                    levels_.flat->duplicate(name + "/flat")};
      copy = make_two_level_backend(std::move(levels), group_.renamed(name), order_, check_abort_);
    });
    copy->set_timeout(timeout());
    copy->set_check(check());
    return copy;
  }

  // Makes the channel in the memory of a node if both ranks are there.
  std::shared_ptr<Channel> channel(const ChannelPlan& plan, Communicator&, std::shared_ptr<BlackBox>) override {
    const int places = levels_.inside->size();
    const bool is_inside = plan.from / places == plan.to / places;
    std::shared_ptr<Channel> channel;
    run_in_turn([&](WaitPolicy&) {
      if (is_inside) channel = levels_.inside->channel(plan.from % places, plan.to % places, plan.depth, plan.name);
      else channel = levels_.flat->channel(plan.from, plan.to, plan.depth, plan.name);
    });
    return channel;
  }

  void set_timeout(std::chrono::milliseconds timeout) override {
    QueuedBackend::set_timeout(timeout);
    for (const auto& level : {levels_.inside, levels_.across, levels_.flat}) level->set_timeout(timeout);
  }

 protected:
  void check_abort() const override { check_abort_(); }
  at::Tensor take_scratch() override { return scratch_.release(); }

  void run_single(const Operation& operation, WaitPolicy& policy) override {
    const LevelSite site{levels_, policy, scratch_, order_};
    if (operation.kind == CallKind::all_to_all) return all_to_all(site, operation);
    if (!is_for_two_levels(operation)) return run_flat(site, operation);
    if (operation.kind == CallKind::all_reduce) all_reduce(site, operation);
    else if (operation.kind == CallKind::reduce_scatter) reduce_scatter(site, operation);
    else all_gather(site, operation);
  }

  // The levels compare their own calls, but ranks with different calls may wait on different levels. Messages are not compared
  // here: all go to `flat`, which does that.
  void compare(const Operation& operation, WaitPolicy& policy) override {
    if (!is_collective(operation.kind)) return;
    const LevelSite site{levels_, policy, scratch_, order_};
    const at::Tensor mine = at::empty({sizeof(Call)}, at::kByte), all = at::empty({group_.size(), sizeof(Call)}, at::kByte);
    std::memcpy(bytes_of(mine), &operation.call, sizeof(Call));
    site.step([&](Async async) { return levels_.flat->all_gather(all, mine, async); });
    std::vector<Call> calls(group_.ranks.size());
    std::memcpy(calls.data(), bytes_of(all), all.nbytes());
    compare_calls(calls, group_);
  }

 private:
  inline static const std::string kName = "two_level";
  const Levels levels_;
  const Group group_;
  const SumOrder order_;
  const std::function<void()> check_abort_;
  Staging scratch_;
};

}  // namespace

std::unique_ptr<Backend> make_two_level_backend(Levels levels, Group group, SumOrder order, std::function<void()> check_abort) {
  return std::make_unique<TwoLevelBackend>(std::move(levels), std::move(group), order, std::move(check_abort));
}

}  // namespace zt::comm
