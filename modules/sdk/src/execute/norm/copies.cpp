#include "copies.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "zt/execute/gradient_norm.h"

namespace zt {

namespace {

// Of norms, and of the norm of all gradients: a gradient may be nothing but rounding.
constexpr double kTolerance = 1e-3, kLeast = 1e-4;

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

double norm_of(const at::Tensor& gradient) {
  ExactSum sum;
  if (gradient.is_cpu()) add_squares(gradient, 0, gradient.numel(), sum);
  else sum.merge(ExactSum::from_state(squares_on_device(gradient, 0, gradient.numel()).cpu()));
  return std::sqrt(sum.value());
}

bool is_alike(double a, double b, double all) {
  if (!std::isfinite(a) || !std::isfinite(b)) return true;  // not a copy, or reported elsewhere
  return std::abs(a - b) <= std::max(kTolerance * std::max(a, b), kLeast * all);
}

// Returns what all ranks of a communicator have, one after the other.
at::Tensor of_all(Communicator& control, const at::Tensor& mine) {
  const at::Tensor of_ranks = at::empty({control.size() * mine.numel()}, at::kDouble);
  control.all_gather(of_ranks, mine.contiguous()).wait();
  return of_ranks.view({control.size(), mine.numel()});
}

// Compares the losses along an axis whose ranks have the same tokens. `losses`: of this rank, by position.
std::string differing_losses(const std::string& axis, const at::Tensor& losses, const StepState& state) {
  const at::Tensor of_ranks = of_all(state.links->control({axis}), losses), all = of_ranks.abs().sum(1);
  for (int64_t rank = 1; rank < of_ranks.size(0); ++rank) {
    for (int64_t position = 0; position < losses.numel(); ++position) {
      const double first = of_ranks[0][position].item<double>(), other = of_ranks[rank][position].item<double>();
      if (is_alike(first, other, all.max().item<double>())) continue;
      return fmt::format(
          "the ranks 0 and {0} of '{1}' work on the same samples, but their losses differ (sums {2:.6g} and {3:.6g}): a layer that "
          "shares its work over '{1}' sums the parts of its result by ctx:reduce_from, and gives ctx:loss the whole (docs/lua.md, cut "
          "layers and cut tokens)",
          rank, axis, first, other);
    }
  }
  return "";
}

// Compares the copies along one axis.
std::string differing_along(const std::string& axis, double all, const std::vector<std::string>& axes, const StepState& state) {
  Communicator& control = state.links->control({axis});
  const auto units = static_cast<int64_t>(state.units.size());
  const at::Tensor mine = at::full({units}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  for (int64_t u = 0; u < units; ++u) {
    const Unit& unit = state.units[static_cast<size_t>(u)];
    if (unit.grad.defined() && is_among(copy_axes(unit, axes, state), axis))
      mine.data_ptr<double>()[u] = norm_of(unit.grad_shard);
  }
  const at::Tensor of_ranks = of_all(control, mine);
  const auto* norms = of_ranks.const_data_ptr<double>();
  for (int64_t u = 0; u < units; ++u) {
    for (int rank = 1; rank < control.size(); ++rank) {
      const double first = norms[u], other = norms[rank * units + u];
      if (is_alike(first, other, all)) continue;
      const ModelInfo& model = *state.model;
      const auto& params = model.units[state.units[static_cast<size_t>(u)].index].params;
      return fmt::format(
          "the ranks 0 and {} of '{}' hold the same values of '{}'{} and work on the same samples, but their gradients differ (norms "
          "{:.6g} and {:.6g}), so they train other weights: a layer that shares its work over '{}' takes what is equal on the "
          "ranks through ctx:copy_to, and sums parts by ctx:reduce_from (docs/lua.md, cut layers and cut tokens)",
          rank, axis, model.params[params.front()].name, params.size() > 1 ? " and what is stored with it" : "", first, other,
          axis);
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> copy_axes(const Unit& unit, const std::vector<std::string>& axes, const StepState& state) {
  const auto& params = state.model->units[unit.index].params;
  const auto cut_axes = state.model->params[params.front()].cut_axes();
  std::vector<std::string> copies;
  for (const std::string& axis : axes) {
    if (is_among(state.links->place().split_axes, axis)) continue;
    if (!is_among(unit.plan.shard_axes, axis) && !is_among(cut_axes, axis)) copies.push_back(axis);
  }
  return copies;
}

std::string differing_copies(const std::vector<std::string>& axes, double norm, const at::Tensor& losses,
                             const StepState& state) {
  std::vector<std::string> shared = axes;
  std::erase_if(shared, [&](const std::string& axis) {
    return !state.model->is_inner(axis) || state.links->place().coord.size(axis) == 1;
  });
  if (shared.empty()) return "";
  std::string text;
  for (const std::string& axis : shared) {
    const std::string more = differing_along(axis, norm, axes, state);
    if (text.empty()) text = more;
    const bool has_other_tokens = is_among(state.links->place().token_axes, axis);
    const std::string of_losses = has_other_tokens ? "" : differing_losses(axis, losses, state);
    if (text.empty()) text = of_losses;
  }
  for (const Value& each : state.links->control(axes).all_gather_values(text, "compares gradients of whole parameters")) {
    if (const std::string& first = *each.get_if<std::string>(); !first.empty()) return first;
  }
  return "";
}

}  // namespace zt
