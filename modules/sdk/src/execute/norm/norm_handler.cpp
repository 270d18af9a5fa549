// The handler of NORM.
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "copies.h"
#include "execute/counts.h"
#include "execute/step_handlers.h"
#include "unit_squares.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/execute/gradient_norm.h"

namespace zt {

namespace {

void reduce_losses(const std::vector<std::string>& axes, Communicator* comm, StepParts& parts, StepState& state) {
  if (parts.mode != Mode::generate) parts.stats.add_exchange_seconds();
  const at::Tensor mine = parts.stats.losses_by_position(), stats = parts.stats.stats_by_position();
  const int64_t n = mine.numel(), m = stats.numel();
  // Losses, statistics, the number of failed ranks, and that of ranks whose numbers are not finite, copies included.
  const at::Tensor sums = at::zeros({n + m + 2}, at::kDouble);
  if (!comm || state.links->place().is_first_copy(axes)) {
    sums.narrow(0, 0, n).copy_(mine);
    sums.narrow(0, n, m).copy_(stats);
  }
  sums.data_ptr<double>()[n + m] = state.failure ? 1 : 0;
  const auto is_finite = [](const at::Tensor& x) { return x.isfinite().all().item<bool>(); };
  sums.data_ptr<double>()[n + m + 1] = is_finite(mine) && is_finite(stats) ? 0 : 1;
  for (const auto& part : summed_in_turn(axes, state.links->place().split_axes))
    state.links->control(part).all_reduce(sums, sums).synchronize();
  if (comm && sums.data_ptr<double>()[n + m] > 0) state.known_failure = share_failure(*comm, state.failure);
  if (state.failure || !state.known_failure.empty()) {
    state.is_forward_finite = false;
    return;
  }
  state.stats = parts.stats.add_stats(sums.narrow(0, n, m));
  state.losses.clear();
  state.loss = 0;
  for (const LossSum& total : parts.stats.add_positions(sums.narrow(0, 0, n))) {
    const double value = total.sum / parts.scale.loss_divisor(total.term.per, state.counts);
    state.losses.push_back({total.term.name, value});
    state.loss += value;
  }
  // A router's logits may be infinite and the loss finite all the same. Sums of finite numbers may be infinite.
  state.is_forward_finite = std::isfinite(state.loss) && is_finite(sums) && sums.data_ptr<double>()[n + m + 1] == 0;
}

// The gradient norm is an exact sum over blocks of the flat layout: each rank of the action's axes takes its part, and the
// parts are added as integers. So its bits do not depend on stage, buckets or schedule.
void reduce_norm(const std::vector<std::string>& axes, Communicator* comm, const StepParts& parts, StepState& state) {
  ExactSum sum;
  at::Tensor words;  // the sum of the gradients on a device; copied to the host once
  for (const Unit& unit : state.units) {
    if (!unit.grad.defined() || unit.is_sliced(UnitData::grads)) continue;
    const Slice piece = counted_piece(unit, axes, state);
    if (is_for_host(unit.grad_shard)) {
      add_piece(unit.grad_shard, piece, sum);
    } else {
      const at::Tensor more = squares_on_device(unit.grad_shard, piece.first, piece.end());
      words = words.defined() ? words + more : more;
    }
  }
  sum.merge(std::exchange(state.squares, ExactSum()));
  if (words.defined()) sum.merge(ExactSum::from_state(words.cpu()));
  if (comm) {
    const at::Tensor limbs = sum.state();
    comm->all_reduce(limbs, limbs).synchronize();
    sum = ExactSum::from_state(limbs);
  }
  state.grad_norm = std::sqrt(sum.value()) / state.grad_divisor;
  state.is_finite = state.is_finite && std::isfinite(state.grad_norm);
  if (!comm || !state.is_finite) return;
  const bool compares = compares_copies(state);
  ++state.finite_norms;
  if (!compares) return;
  state.known_failure = differing_copies(axes, std::sqrt(sum.value()), parts.stats.losses_by_position(), state);
  state.is_finite = state.known_failure.empty();
  if (!state.is_finite) state.finite_norms = 0;  // a script that goes on gets the error again
}

}  // namespace

std::vector<std::vector<std::string>> summed_in_turn(const std::vector<std::string>& axes,
                                                     const std::vector<std::string>& split_axes) {
  std::vector<std::string> stages, others;
  for (const std::string& axis : axes)
    (std::ranges::find(split_axes, axis) != split_axes.end() ? stages : others).push_back(axis);
  std::vector<std::vector<std::string>> parts;
  for (auto& part : {stages, others}) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

Work start_norm(const Action& action, StepParts& parts, StepState& state) {
  const auto axes = action.axes();
  Communicator* comm = axes.empty() ? nullptr : &state.links->control(axes);
  reduce_losses(axes, comm, parts, state);
  state.is_finite = state.is_forward_finite && state.known_failure.empty();
  if (parts.mode == Mode::train && state.known_failure.empty() && !state.failure) reduce_norm(axes, comm, parts, state);
  return {};
}

}  // namespace zt
