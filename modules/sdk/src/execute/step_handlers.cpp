#include "step_handlers.h"

#include <algorithm>
#include <cmath>

#include "counts.h"
#include "execute/norm/norm_handler.h"
#include "zt/base/error.h"

namespace zt {

namespace {

// F, R and B: calls ComputeState for a position and a micro-batch.
class Compute : public ActionHandler {
 public:
  using Run = Work (*)(ComputeState&, const Action&);
  Compute(std::shared_ptr<ComputeState> compute, Run run) : compute_(std::move(compute)), run_(run) {}

  Work start(const Action& action, StepState& state) override {
    return state.failure ? compute_->join(action) : run_(*compute_, action);
  }

 private:
  std::shared_ptr<ComputeState> compute_;
  Run run_;
};

Work forward(ComputeState& compute, const Action& action) {
  return compute.forward(action.target, action.micro_batch, parse_keep(action.attr("keep")));
}
Work recompute(ComputeState& compute, const Action& action) {
  return compute.recompute(action.target, action.micro_batch);
}
Work backward(ComputeState& compute, const Action& action) {
  return compute.backward(action.target, action.micro_batch);
}
Work backward_inputs(ComputeState& compute, const Action& action) {
  return compute.backward_inputs(action.target, action.micro_batch);
}
Work backward_weights(ComputeState& compute, const Action& action) {
  compute.backward_weights(action.target, action.micro_batch);
  return {};
}

class Update : public ActionHandler {
 public:
  explicit Update(std::shared_ptr<ComputeState> compute) : compute_(std::move(compute)) {}

  Work start(const Action& action, StepState& state) override {
    if (state.is_finite && !state.failure) compute_->update_layer(action.target, state.stats);
    return {};
  }

 private:
  std::shared_ptr<ComputeState> compute_;
};

// Returns how this rank's counts enter the sums over `axes`.
Contribution contribution(std::vector<std::string> axes, const StepState& state) {
  const bool is_first_copy = state.is_first_copy(axes);
  std::erase_if(axes,
                [&](const std::string& axis) { return std::ranges::find(state.split_axes, axis) != state.split_axes.end(); });
  return {.is_counted = is_first_copy, .group = state.coord.index(axes)};
}

class Count : public ActionHandler {
 public:
  Count(std::shared_ptr<ComputeState> compute, std::shared_ptr<Normalisation> normalisation)
      : compute_(std::move(compute)), normalisation_(std::move(normalisation)) {}

  Work start(const Action& action, StepState& state) override {
    if (!state.failure) state.counts = compute_->count();
    const int ranks = state.coord.size(action.sample_axes());
    if (const auto axes = action.axes(); !axes.empty()) sum(axes, state);
    if (state.failure) return {};
    const auto [tokens, samples] = state.counts;
    if (samples == 0) misuse("the global batch has no samples");
    const auto base = static_cast<double>(tokens > 0 ? tokens : samples);
    if (compute_->mode() != Mode::train) return {};
    auto& exponent = normalisation_->seed_exponent;
    if (!exponent) exponent = static_cast<int>(std::lround(std::log2(base / ranks / compute_->micro_batches())));
    const double seed = std::ldexp(1.0, -*exponent);
    compute_->set_seeds({seed, seed * base / static_cast<double>(samples)});
    state.grad_divisor = seed * base * state.loss_scale;
    return {};
  }

 private:
  void sum(const std::vector<std::string>& axes, StepState& state) const {
    Contribution mine = contribution(axes, state);
    mine.failure = state.failure;
    if (compute_->mode() == Mode::train) mine.lr = state.scalars.lr;
    const bool is_first_step = compute_->mode() == Mode::train && state.step == 0;
    if ((!state.split_axes.empty() || is_first_step) && !state.failure) mine.samples = hash_of(compute_->fields());
    if (compute_->needs_equal_batches() && !state.failure) mine.shapes = hash_of_shapes(compute_->fields());
    try {
      state.counts = sum_counts(state.links->control(axes), state.counts, mine, compute_->mode(), state.step);
    } catch (const Misuse& error) {
      throw StepRefused(error.what());
    }
  }

  std::shared_ptr<ComputeState> compute_;
  std::shared_ptr<Normalisation> normalisation_;
};

class ReduceTie : public ActionHandler {
 public:
  explicit ReduceTie(std::shared_ptr<ComputeState> compute) : compute_(std::move(compute)) {}

  Work start(const Action& action, StepState& state) override {
    const Unit& unit = state.units.at(action.target);
    compute_->gradients().complete_over_holders(unit, state.links->holders(unit));
    return {};
  }

 private:
  std::shared_ptr<ComputeState> compute_;
};

class Step : public ActionHandler {
 public:
  Step(std::shared_ptr<const Optimizer> optimizer, std::vector<std::vector<Segment>> updates)
      : optimizer_(std::move(optimizer)), updates_(std::move(updates)) {}

  Work start(const Action& action, StepState& state) override {
    if (!state.is_finite || state.failure) return {};  // the trainer reports it or ends the run
    Unit& unit = state.units[action.target];
    Scalars scalars = state.scalars;
    scalars.grad_scale = clip_factor(state) / state.grad_divisor;
    FlatState shard{unit.master, unit.state, unit.owns_master() ? unit.shard : at::Tensor()};
    const auto& updates = updates_[action.target];
    const int64_t parts = action.number("parts", 1);
    if (parts == 1) optimizer_->step(shard, unit.grad_shard, updates, scalars);
    else optimizer_->step(shard, unit.grad_shard, slice(updates, unit.layout.chunk, action.number("part", 0), parts), scalars);
    return {};
  }

 private:
  // Returns the segments cut to slice `part` of `parts` slices of the shard.
  static std::vector<Segment> slice(const std::vector<Segment>& segments, int64_t chunk, int64_t part, int64_t parts) {
    const int64_t size = (chunk + parts - 1) / parts;
    std::vector<Segment> inside;
    for (Segment segment : segments) {
      segment.begin = std::max(segment.begin, part * size);
      segment.end = std::min(segment.end, (part + 1) * size);
      if (segment.begin < segment.end) inside.push_back(segment);
    }
    return inside;
  }

  // As torch.nn.utils.clip_grad_norm_.
  static double clip_factor(const StepState& state) {
    if (state.clip <= 0) return 1;
    return std::min(1.0, state.clip / (state.grad_norm + 1e-6));
  }

  std::shared_ptr<const Optimizer> optimizer_;
  std::vector<std::vector<Segment>> updates_;
};

}  // namespace

Executor::Handlers step_handlers(std::shared_ptr<ComputeState> compute, std::shared_ptr<Normalisation> normalisation,
                                 std::shared_ptr<const Optimizer> optimizer, std::vector<std::vector<Segment>> updates) {
  const Kinds& kinds = Kinds::get();
  return {
      {kinds.count, std::make_shared<Count>(compute, normalisation)},
      {kinds.forward, std::make_shared<Compute>(compute, forward)},
      {kinds.recompute, std::make_shared<Compute>(compute, recompute)},
      {kinds.backward, std::make_shared<Compute>(compute, backward)},
      {kinds.input_grad, std::make_shared<Compute>(compute, backward_inputs)},
      {kinds.weight_grad, std::make_shared<Compute>(compute, backward_weights)},
      {kinds.reduce_tie, std::make_shared<ReduceTie>(compute)},
      {kinds.norm, norm_handler(compute, normalisation)},
      {kinds.update, std::make_shared<Update>(compute)},
      {kinds.step, std::make_shared<Step>(std::move(optimizer), std::move(updates))},
  };
}

}  // namespace zt
