#include "step_handlers.h"

#include <algorithm>

#include "counts.h"
#include "execute/norm/norm_handler.h"
#include "zt/base/error.h"

namespace zt {

namespace {

// F, R and B: calls LayerRuns for a position and a micro-batch.
class Compute : public ActionHandler {
 public:
  using Run = Work (*)(LayerRuns&, const Action&);
  Compute(std::shared_ptr<LayerRuns> layers, Run run) : layers_(std::move(layers)), run_(run) {}

  Work start(const Action& action, StepState& state) override {
    return state.failure ? layers_->join(action) : run_(*layers_, action);
  }

 private:
  std::shared_ptr<LayerRuns> layers_;
  Run run_;
};

Work forward(LayerRuns& layers, const Action& action) {
  return layers.forward(action.target, action.micro_batch, action.keep());
}
Work recompute(LayerRuns& layers, const Action& action) {
  return layers.recompute(action.target, action.micro_batch);
}
Work backward(LayerRuns& layers, const Action& action) {
  return layers.backwards().backward(action.target, action.micro_batch);
}
Work backward_inputs(LayerRuns& layers, const Action& action) {
  return layers.backwards().backward_inputs(action.target, action.micro_batch);
}
Work backward_weights(LayerRuns& layers, const Action& action) {
  layers.backwards().backward_weights(action.target, action.micro_batch);
  return {};
}

class Update : public ActionHandler {
 public:
  explicit Update(StepStats& stats) : stats_(stats) {}

  Work start(const Action& action, StepState& state) override {
    if (state.is_finite && !state.failure) stats_.update_layer(action.target, state.stats);
    return {};
  }

 private:
  StepStats& stats_;
};

// Returns how this rank's counts enter the sums over `axes`.
Contribution contribution(std::vector<std::string> axes, const StepState& state) {
  const bool is_first_copy = state.links->place().is_first_copy(axes);
  std::erase_if(axes, [&](const std::string& axis) {
    return std::ranges::find(state.links->place().split_axes, axis) != state.links->place().split_axes.end();
  });
  return {.is_counted = is_first_copy, .group = state.links->place().coord.index(axes), .trainer = state.links->trainer()};
}

class Count : public ActionHandler {
 public:
  explicit Count(StepParts& parts) : parts_(parts) {}

  Work start(const Action& action, StepState& state) override {
    if (!state.failure) state.counts = parts_.batches.counts();
    if (const auto axes = action.axes(); !axes.empty()) sum(axes, state);
    if (state.failure) return {};
    if (state.counts.samples == 0) misuse("the global batch has no samples");
    if (parts_.mode != Mode::train) return {};
    const double parts = static_cast<double>(state.links->place().coord.size(action.sample_axes())) * parts_.batches.count();
    state.grad_divisor = parts_.scale.set_counts(state.counts, parts) * state.loss_scale;
    return {};
  }

 private:
  void sum(const std::vector<std::string>& axes, StepState& state) const {
    Contribution mine = contribution(axes, state);
    mine.failure = state.failure;
    if (parts_.mode == Mode::train) mine.lr = state.scalars.lr;
    const bool is_first_step = parts_.mode == Mode::train && state.step == 0;
    if ((!state.links->place().split_axes.empty() || is_first_step) && !state.failure)
      mine.samples = hash_of(parts_.batches.all());
    if (parts_.batches.need_equal_shapes() && !state.failure) mine.shapes = hash_of_shapes(parts_.batches.all());
    try {
      state.counts = sum_counts(state.links->control(axes), state.counts, mine, parts_.mode, state.step);
    } catch (const Misuse& error) {
      throw StepRefused(error.what());
    }
  }

  StepParts& parts_;
};

class ReduceTie : public ActionHandler {
 public:
  explicit ReduceTie(Gradients& gradients) : gradients_(gradients) {}

  Work start(const Action& action, StepState& state) override {
    const Unit& unit = state.units.at(action.target);
    gradients_.complete_over_holders(unit, state.links->holders(unit));
    return {};
  }

 private:
  Gradients& gradients_;
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
    FlatState shard{unit.master, unit.state, unit.owns_master() ? unit.shard : at::Tensor(), state.model};
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
      const int64_t before = segment.begin;
      segment.begin = std::max(segment.begin, part * size);
      segment.first += segment.begin - before;
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

// The handlers of what a step shares refer to parts of `layers`, which the handlers of F and B keep alive.
Executor::Handlers step_handlers(std::shared_ptr<LayerRuns> layers, std::shared_ptr<const Optimizer> optimizer,
                                 std::vector<std::vector<Segment>> updates) {
  const Kinds& kinds = Kinds::get();
  StepParts& parts = layers->parts();
  return {
      {kinds.count, std::make_shared<Count>(parts)},
      {kinds.forward, std::make_shared<Compute>(layers, forward)},
      {kinds.recompute, std::make_shared<Compute>(layers, recompute)},
      {kinds.backward, std::make_shared<Compute>(layers, backward)},
      {kinds.input_grad, std::make_shared<Compute>(layers, backward_inputs)},
      {kinds.weight_grad, std::make_shared<Compute>(layers, backward_weights)},
      {kinds.reduce_tie, std::make_shared<ReduceTie>(parts.gradients)},
      {kinds.norm, norm_handler(parts)},
      {kinds.update, std::make_shared<Update>(parts.stats)},
      {kinds.step, std::make_shared<Step>(std::move(optimizer), std::move(updates))},
  };
}

}  // namespace zt
