#include "step_handlers.h"

#include <algorithm>

#include "counts.h"
#include "movement/move_slices.h"
#include "zt/base/error.h"

namespace zt {

namespace {

void sum_over_ranks(const std::vector<std::string>& axes, const StepParts& parts, StepState& state) {
  Contribution mine = contribution_of(state, axes, parts.batches, parts.mode);
  mine.rows = samples_of(parts.batches.all());
  if (parts.batches.need_equal_shapes() && !state.failure) mine.shapes = hash_of_shapes(parts.batches.seen());
  try {
    state.counts = sum_counts(state.links->control(axes), state.counts, mine, parts.mode, state.step);
  } catch (const Misuse& error) {
    throw StepRefused(error.what());
  }
}

Work start_count(const Action& action, StepParts& parts, StepState& state) {
  if (!state.failure) {
    parts.batches.check(parts.mode);
    state.counts = parts.batches.counts();
  }
  if (const auto axes = action.axes(); !axes.empty()) sum_over_ranks(axes, parts, state);
  if (state.failure) return {};
  if (state.counts.samples == 0) misuse("the global batch has no samples");
  if (parts.mode != Mode::train) return {};
  const double counted = static_cast<double>(state.links->place().coord.size(action.sample_axes())) * parts.batches.count();
  state.grad_divisor = parts.scale.set_counts(state.counts, counted) * state.loss_scale;
  return {};
}

}  // namespace

// The handlers of what a step shares refer to parts of `layers`, which the handlers of F and B keep alive.
Executor::Handlers step_handlers(const std::shared_ptr<LayerRuns>& layers, const std::shared_ptr<Updater>& updater) {
  const Kinds& kinds = Kinds::get();
  StepParts& parts = layers->parts();
  const auto compute = [&](auto run) {
    return handler_of([layers, run](const Action& action, StepState& state) {
      return state.failure ? layers->join(action) : run(*layers, action);
    });
  };
  const auto tie = [&parts](const Action& action, StepState& state) {
    const Unit& unit = state.units.at(action.target);
    parts.gradients.complete_over_holders(unit, state.links->holders(unit));
    return Work();
  };
  const auto update = [&parts](const Action& action, StepState& state) {
    if (state.is_finite && !state.failure) parts.stats.update_layer(action.target, state.stats);
    return Work();
  };
  const auto of_updater = [&updater](Work (Updater::*start)(const Action&, StepState&) const) {
    return handler_of([updater, start](const Action& action, StepState& state) { return ((*updater).*start)(action, state); });
  };
  return {
      {kinds.count, handler_of([&parts](const Action& a, StepState& state) { return start_count(a, parts, state); })},
      {kinds.forward, compute([](LayerRuns& runs, const Action& a) { return runs.forward(a.target, a.micro_batch, a.keep()); })},
      {kinds.recompute, compute([](LayerRuns& runs, const Action& a) { return runs.recompute(a.target, a.micro_batch); })},
      {kinds.backward, compute([](LayerRuns& runs, const Action& a) { return backward(runs.parts(), a.target, a.micro_batch); })},
      {kinds.input_grad,
       compute([](LayerRuns& runs, const Action& a) { return backward_inputs(runs.parts(), a.target, a.micro_batch); })},
      {kinds.weight_grad,
       compute([](LayerRuns& runs, const Action& a) { return backward_weights(runs.parts(), a.target, a.micro_batch); })},
      {kinds.reduce_tie, handler_of(tie)},
      {kinds.norm, handler_of([&parts](const Action& a, StepState& state) { return start_norm(a, parts, state); })},
      {kinds.update, handler_of(update)},
      {kinds.step, of_updater(&Updater::step)},
      {kinds.gather_tensors, of_updater(&Updater::gather)},
      {kinds.scatter_tensors, of_updater(&Updater::scatter)},
      {kinds.fetch, handler_of(start_fetch)},
      {kinds.evict, handler_of(start_evict)},
      {kinds.fetch_value, handler_of([&parts](const Action& a, StepState& state) { return parts.moved.fetch(a, state); })},
      {kinds.evict_value, handler_of([&parts](const Action& a, StepState&) { return parts.moved.evict(a, parts); })},
  };
}

}  // namespace zt
