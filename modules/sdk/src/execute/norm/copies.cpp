#include "copies.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "zt/base/tensor.h"
#include "zt/execute/gradient_norm.h"

namespace zt {

namespace {

// Of two numbers, and of all of them: a gradient may be nothing but rounding.
constexpr double kTolerance = 1e-3, kLeast = 1e-4, kLeastOfWide = 1e-6;

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns the norm of the gradient of a parameter, of the part that this rank owns.
double norm_of(const Unit& unit, const ParamInfo& param, const StepState& state) {
  const int64_t first = unit.layout.begin(unit.rank), last = unit.layout.end(unit.rank);
  const int64_t end_of_param = param.offset + param.local_numel(state.links->place().coord);
  const int64_t begin = std::max(param.offset, first), end = std::min(end_of_param, last);
  if (begin >= end) return 0;
  ExactSum sum;
  if (is_for_host(unit.grad_shard)) add_squares(unit.grad_shard, begin - first, end - first, sum);
  else sum.merge(ExactSum::from_state(squares_on_device(unit.grad_shard, begin - first, end - first).cpu()));
  return std::sqrt(sum.value());
}

bool is_alike(double a, double b, double least) {
  if (!std::isfinite(a) || !std::isfinite(b)) return true;  // not a copy, or reported elsewhere
  return std::abs(a - b) <= std::max(kTolerance * std::max(std::abs(a), std::abs(b)), least);
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
      if (is_alike(first, other, kLeast * all.max().item<double>())) continue;
      return fmt::format(
          "the ranks 0 and {0} of '{1}' work on the same samples, but their losses differ (sums {2:.6g} and {3:.6g}): a layer that "
          "shares its work over '{1}' sums the parts of its result by ctx:reduce_from, and gives ctx:loss the whole (docs/lua.md, cut "
          "layers and cut tokens)",
          rank, axis, first, other);
    }
  }
  return "";
}

// Returns the axes along which ranks share work on the same samples.
std::vector<std::string> shared_axes(std::vector<std::string> axes, const StepState& state) {
  std::erase_if(
      axes, [&](const std::string& axis) { return !state.model->is_inner(axis) || state.links->place().coord.size(axis) == 1; });
  return axes;
}

// Compares the copies along one axis. `all`: the norm of all gradients.
std::string differing_along(const std::string& axis, double all, const std::vector<std::string>& axes, const StepState& state) {
  Communicator& control = state.links->control({axis});
  const auto& params = state.model->params;
  const auto count = static_cast<int64_t>(params.size());
  const at::Tensor mine = at::full({count}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  bool is_narrow = false;
  for (const Unit& unit : state.units) {
    if (!unit.grad.defined() || !is_among(copy_axes(unit, axes, state), axis)) continue;
    is_narrow = is_narrow || unit.full.element_size() < 4;
    for (const int param : state.model->units[unit.index].params) {
      const auto left = state.norms_of_left.find(param);
      mine.data_ptr<double>()[param] = left == state.norms_of_left.end() ? norm_of(unit, params[param], state) : left->second;
    }
  }
  const at::Tensor of_ranks = of_all(control, mine);
  const auto* norms = of_ranks.const_data_ptr<double>();
  for (int64_t param = 0; param < count; ++param) {
    for (int rank = 1; rank < control.size(); ++rank) {
      const double first = norms[param], other = norms[rank * count + param];
      if (is_alike(first, other, (is_narrow ? kLeast : kLeastOfWide) * all)) continue;
      return fmt::format(
          "the ranks 0 and {} of '{}' hold the same values of '{}' and work on the same samples, but their gradients differ (norms "
          "{:.6g} and {:.6g}), so they train other weights: a layer that shares its work over '{}' takes what is equal on the "
          "ranks through ctx:copy_to, and sums parts by ctx:reduce_from (docs/lua.md, cut layers and cut tokens)",
          rank, axis, params[param].name, first, other, axis);
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

bool compares_copies(const StepState& state) {
  return std::has_single_bit(state.finite_norms + 1);
}

void note_norms(const Unit& unit, const std::vector<std::string>& axes, StepState& state) {
  if (!compares_copies(state) || shared_axes(axes, state).empty()) return;
  for (const int param : state.model->units[unit.index].params)
    state.norms_of_left[param] = norm_of(unit, state.model->params[param], state);
}

std::string differing_copies(const std::vector<std::string>& axes, double norm, const at::Tensor& losses,
                             const StepState& state) {
  const std::vector<std::string> shared = shared_axes(axes, state);
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
