#include "handlers.h"

#include "zt/base/error.h"
#include "zt/execute/gradient_sum.h"

namespace zt::zero {

namespace {

std::vector<Unit*> units_of(const Action& action, StepState& state) {
  std::vector<Unit*> units;
  for (const int index : action.units()) units.push_back(&state.units.at(index));
  return units;
}

// Throws Misuse unless all units are sharded over the same number of ranks: one, or the ranks that communicate.
void check_sharding(const Action& action, const std::vector<Unit*>& units, const Communicator& comm) {
  const int ranks = units.front()->layout.ranks;
  for (const Unit* unit : units) {
    if (unit->layout.ranks == ranks && (ranks == 1 || ranks == comm.size())) continue;
    misuse(
        "{}: unit {} is sharded over {} ranks, but axis '{}' has {} and the bucket's first unit is sharded over {}: shard along "
        "the axis that reduces, and put only units with equal sharding into a bucket",
        action_text(action), unit->index, unit->layout.ranks, comm.name(), comm.size(), ranks);
  }
}

class ReduceGrad : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    Communicator& comm = state.links->comm(action.axes());
    const std::vector<Unit*> units = units_of(action, state);
    const GradientPart part = action.gradient_part();
    std::vector<at::Tensor> grads, sums;
    check_sharding(action, units, comm);
    const bool scatters = sums_parts(*units.front());
    for (const Unit* unit : units) {
      grads.push_back(unit->grad);
      sums.push_back(summed_part(*unit, part));
    }
    const bool is_converted = action.attrs.contains("dtype");
    const Work work = is_converted ? reduce_converted(comm, state.wire, units, grads, sums, scatters)
                      : scatters   ? comm.reduce_scatter(sums, grads, ReduceOp::sum, Async::yes)
                                   : comm.all_reduce(grads, ReduceOp::sum, Async::yes);
    if (part == GradientPart::whole) return work;
    return then(work, [units, part] {
      for (Unit* unit : units) accumulate(*unit, part);
    });
  }

 private:
  // Sends the gradients in another dtype than they are accumulated in, from `buffer`, which all reductions share: each waits
  // until the last one no longer uses it.
  Work reduce_converted(Communicator& comm, const at::Tensor& buffer, const std::vector<Unit*>& units,
                        const std::vector<at::Tensor>& grads, const std::vector<at::Tensor>& sums, bool scatters) {
    last_use_.wait();
    std::vector<at::Tensor> sent;
    int64_t place = 0;
    for (const at::Tensor& grad : grads) {
      sent.push_back(buffer.narrow(0, place, grad.numel()));
      sent.back().copy_(grad);
      place += grad.numel();
    }
    std::vector<at::Tensor> received = sent;
    for (size_t i = 0; scatters && i < units.size(); ++i)
      received[i] = sent[i].narrow(0, units[i]->rank * units[i]->layout.chunk, units[i]->layout.chunk);
    const Work moved = scatters ? comm.reduce_scatter(received, sent, ReduceOp::sum, Async::yes)
                                : comm.all_reduce(sent, ReduceOp::sum, Async::yes);
    last_use_ = then(moved, [received, sums] {
      for (size_t i = 0; i < sums.size(); ++i) at::Tensor(sums[i]).copy_(received[i]);
    });
    return last_use_;
  }

  Work last_use_;  // the last work that uses the buffer
};

class ReplicateGrad : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    std::vector<at::Tensor> shards;
    for (const Unit* unit : units_of(action, state)) shards.push_back(unit->grad_shard);
    return state.links->comm(action.axes()).all_reduce(shards, ReduceOp::sum, Async::yes);
  }
};

class Unshard : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    Communicator& comm = state.links->comm(action.axes());
    const std::vector<Unit*> units = units_of(action, state);
    check_sharding(action, units, comm);
    if (units.front()->is_node_shared()) {  // ranks write in place, and no rank may read before all have written
      comm.barrier();
      return {};
    }
    std::vector<at::Tensor> fulls, parts;
    for (const Unit* unit : units) {  // as bytes, because some may be packed
      fulls.push_back(unit->full.view(at::kByte));
      parts.push_back(unit->shard.view(at::kByte));
    }
    return comm.all_gather(fulls, parts, Async::yes);
  }
};

// Does nothing: after RESHARD the next UNSHARD may overwrite the buffer.
class Reshard : public ActionHandler {
 public:
  Work start(const Action&, StepState&) override { return {}; }
};

}  // namespace

std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> make_handlers() {
  const Kinds& kinds = Kinds::get();
  return {{kinds.reduce_grad, std::make_shared<ReduceGrad>()},
          {kinds.replicate_grad, std::make_shared<ReplicateGrad>()},
          {kinds.unshard, std::make_shared<Unshard>()},
          {kinds.reshard, std::make_shared<Reshard>()}};
}

}  // namespace zt::zero
