#include "handlers.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include "zt/error.h"

namespace zt::zero {

namespace {

// A work that has something left to do once another one is complete, on the thread that waits.
class Then : public Work::State {
 public:
  Then(Work work, std::function<void()> rest) : work_(std::move(work)), rest_(std::move(rest)) {}
  bool done() override { return work_.done(); }
  void wait() override {
    work_.wait();
    finish();
  }
  void synchronize() override {
    work_.synchronize();
    finish();
  }

 private:
  void finish() {
    if (const auto rest = std::exchange(rest_, nullptr)) rest();
  }

  Work work_;
  std::function<void()> rest_;
};

std::vector<Unit*> units_of(const Action& action, StepState& state) {
  std::vector<Unit*> units;
  for (const int index : action.units()) units.push_back(&state.units.at(index));
  return units;
}

// A unit that is cut is cut over the ranks that communicate, and all of a bucket alike.
bool is_cut(const Action& action, const std::vector<Unit*>& units, const Communicator& comm) {
  const int ranks = units.front()->layout.ranks;
  for (const Unit* unit : units) {
    if (unit->layout.ranks == ranks && (ranks == 1 || ranks == comm.size())) continue;
    misuse(
        "{}: unit {} is cut over {} ranks, but axis '{}' has {} and the bucket's first unit is cut over {}: shard along the axis "
        "that "
        "reduces, and bucket alike units",
        action_text(action), unit->index, unit->layout.ranks, comm.name(), comm.size(), ranks);
  }
  return ranks > 1;
}

// The rank's part of `grad`.
at::Tensor part_of_grad(const Unit& unit) {
  return unit.grad.narrow(0, unit.rank * unit.layout.chunk, unit.layout.chunk);
}

// Where the shard is a buffer of its own it holds the sum so far; else `grad_sum` does. The same additions in the same order.
void accumulate(Unit& unit, const std::string& part) {
  if (unit.owns_grad_shard()) {
    if (part == "first") unit.grad_shard.copy_(part_of_grad(unit));
    else unit.grad_shard.add_(part_of_grad(unit));
    return;
  }
  if (!unit.grad_sum.defined()) unit.grad_sum = at::empty_like(unit.grad_shard);
  if (part == "first") unit.grad_sum.copy_(unit.grad_shard);
  else if (part == "middle") unit.grad_sum.add_(unit.grad_shard);
  else at::add_out(unit.grad_shard, unit.grad_sum, unit.grad_shard);
}

class ReduceGrad : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    Communicator& comm = state.comm(action.axes());
    const std::vector<Unit*> units = units_of(action, state);
    const std::string part = action.attr("sum");
    std::vector<at::Tensor> grads, shards;
    for (const Unit* unit : units) {
      grads.push_back(unit->grad);
      shards.push_back(part.empty() ? unit->grad_shard : part_of_grad(*unit));
    }
    const bool scatters = is_cut(action, units, comm) || units.front()->owns_grad_shard();
    const Work work = scatters ? comm.reduce_scatter(shards, grads, ReduceOp::sum, Async::yes)
                               : comm.all_reduce(grads, ReduceOp::sum, Async::yes);
    if (part.empty()) return work;
    return Work(std::make_shared<Then>(work, [units, part] {
      for (Unit* unit : units) accumulate(*unit, part);
    }));
  }
};

// What this rank gives to the others: its master, rounded where that is more precise than the parameters.
at::Tensor owned_part(const Unit& unit) {
  if (unit.master.scalar_type() == unit.full.scalar_type()) return unit.master;
  const at::Tensor part = unit.full.narrow(0, unit.rank * unit.layout.chunk, unit.layout.chunk);
  part.copy_(unit.master);
  return part;
}

class Unshard : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    Communicator& comm = state.comm(action.axes());
    const std::vector<Unit*> units = units_of(action, state);
    is_cut(action, units, comm);
    std::vector<at::Tensor> fulls, parts;
    for (const Unit* unit : units) {
      fulls.push_back(unit->full);
      parts.push_back(owned_part(*unit));
    }
    return comm.all_gather(fulls, parts, Async::yes);
  }
};

// The buffer is another unit's from now on: nothing to do.
class Reshard : public ActionHandler {
 public:
  Work start(const Action&, StepState&) override { return {}; }
};

}  // namespace

std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> make_handlers() {
  const Kinds& kinds = Kinds::get();
  return {{kinds.reduce_grad, std::make_shared<ReduceGrad>()},
          {kinds.unshard, std::make_shared<Unshard>()},
          {kinds.reshard, std::make_shared<Reshard>()}};
}

}  // namespace zt::zero
