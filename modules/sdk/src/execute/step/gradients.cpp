#include "gradients.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace zt {

// The sums of all uses of a parameter, gathered: each holder sends as many rows as the one with most uses has.
struct Gradients::GatheredRows {
  int64_t rows_of_holder = 0;
  std::vector<std::pair<int, int64_t>> places;  // position of each use, ascending, and the row of its sum
};

// `uses`: as in Unit.
Gradients::GatheredRows Gradients::rows_of(const std::vector<std::vector<int>>& uses) {
  GatheredRows gathered;
  for (const auto& positions : uses)
    gathered.rows_of_holder = std::max(gathered.rows_of_holder, static_cast<int64_t>(positions.size()));
  for (size_t holder = 0; holder < uses.size(); ++holder) {
    int64_t row = static_cast<int64_t>(holder) * gathered.rows_of_holder;
    for (const int position : uses[holder]) gathered.places.emplace_back(position, row++);
  }
  std::ranges::sort(gathered.places);
  return gathered;
}

Gradients::Gradients(const LayerTable& layers, const StepState& state)
    : model_(*state.model), uses_(model_.params.size()), gaps_(model_.units.size()), is_complete_(model_.units.size(), false) {
  const Coord& coord = state.links->place().coord;
  for (size_t i = 0; i < model_.params.size(); ++i) {
    const ParamInfo& param = model_.params[i];
    const at::Tensor& flat = state.units[param.unit].grad;
    if (!param.trainable || !flat.defined()) continue;
    for (const int position : param.positions) {
      if (!layers.runs(position)) continue;
      const bool is_first = uses_[i].empty();
      const std::vector<int64_t> shape = param.local_shape(coord);
      at::Tensor view =
          is_first ? flat.narrow(0, param.offset, param.local_numel(coord)).view(shape) : at::zeros(shape, flat.options());
      uses_[i].push_back({position, std::move(view)});
    }
  }
  for (const Unit& unit : state.units) {
    if (unit.has_grad_slot) find_gaps(unit);
  }
}

void Gradients::find_gaps(const Unit& unit) {
  int64_t end = 0;
  const auto add_gap = [&](int64_t next) {
    if (next > end) gaps_[unit.index].push_back(unit.grad.narrow(0, end, next - end));
  };
  for (const int index : model_.units[unit.index].params) {
    if (uses_[index].empty()) continue;
    const ParamInfo& param = model_.params[index];
    add_gap(param.offset);
    end = param.offset + uses_[index].front().view.numel();
  }
  add_gap(unit.layout.padded());
}

void Gradients::begin_step() {
  std::fill(is_complete_.begin(), is_complete_.end(), false);
  for (auto& uses : uses_) {
    for (auto& use : uses) use.has_sum = false;
  }
}

void Gradients::open(int unit) {
  if (!is_complete_[unit]) return;
  is_complete_[unit] = false;
  for (const int param : model_.units[unit].params) {
    for (auto& use : uses_[param]) use.has_sum = false;
  }
}

Context::Sink Gradients::sink(int param, int position) {
  for (auto& use : uses_[param]) {
    if (use.position != position) continue;
    const bool first = !use.has_sum;
    use.has_sum = true;
    return {use.view, first};
  }
  return {};
}

void Gradients::add(int param, int position, const at::Tensor& gradient) {
  sink(param, position).add(gradient);
}

at::Tensor Gradients::scratch(int param) const {
  const at::Tensor& view = uses_[param].front().view;
  return at::empty(view.sizes(), view.element_size() < 4 ? view.options().dtype(at::kFloat) : view.options());
}

void Gradients::complete(int unit) {
  if (is_complete_[unit]) return;
  is_complete_[unit] = true;
  for (const at::Tensor& gap : gaps_[unit]) gap.zero_();
  for (const int param : model_.units[unit].params) {
    if (uses_[param].empty()) continue;
    const Use& total = uses_[param].front();
    if (!total.has_sum) total.view.zero_();
    for (size_t k = 1; k < uses_[param].size(); ++k) {
      if (uses_[param][k].has_sum) total.view.add_(uses_[param][k].view);
    }
  }
}

namespace {

constexpr int64_t kSlice = 1 << 20;  // elements; bounds the memory for what other ranks send

// Returns this rank's parts of a slice of a sum over holders, [rows, count], and those of all, [ranks * rows, count].
std::pair<at::Tensor, at::Tensor> exchange_buffers(int64_t rows, int64_t ranks, int64_t count, const at::TensorOptions& options) {
  return {at::zeros({rows, count}, options), at::empty({ranks * rows, count}, options)};
}

}  // namespace

void Gradients::rehearse_over_holders(const Unit& unit) const {
  const int64_t rows = rows_of(unit.uses).rows_of_holder;
  for (const int param : model_.units[unit.index].params) {
    if (model_.params[param].trainable && !uses_[param].empty())
      exchange_buffers(rows, static_cast<int64_t>(unit.holders.size()), std::min(kSlice, uses_[param].front().view.numel()),
                       uses_[param].front().view.options());
  }
}

// `gathered`: the rows of each use, of which every parameter of the unit has the same, because a unit with several parameters
// belongs to one layer.
void Gradients::sum_over_holders(int param, const GatheredRows& gathered, Communicator& comm) {
  std::vector<Use>& uses = uses_[param];
  for (Use& use : uses) {
    if (!use.has_sum) use.view.zero_();
  }
  const int64_t rows = gathered.rows_of_holder;
  const auto& places = gathered.places;
  const int64_t numel = uses.front().view.numel();
  for (int64_t begin = 0; begin < numel; begin += kSlice) {
    const int64_t count = std::min(kSlice, numel - begin);
    const auto [mine, all] = exchange_buffers(rows, comm.size(), count, uses.front().view.options());
    for (size_t k = 0; k < uses.size(); ++k) mine[static_cast<int64_t>(k)].copy_(uses[k].view.view({-1}).narrow(0, begin, count));
    comm.all_gather(all.view({-1}), mine.view({-1})).synchronize();
    at::Tensor sum = uses.front().view.view({-1}).narrow(0, begin, count);
    sum.copy_(all[places.front().second]);
    for (size_t k = 1; k < places.size(); ++k) sum.add_(all[places[k].second]);
  }
}

void Gradients::complete_over_holders(const Unit& unit, Communicator& comm) {
  if (is_complete_[unit.index]) return;
  const GatheredRows gathered = rows_of(unit.uses);
  for (const int param : model_.units[unit.index].params) {
    if (model_.params[param].trainable) sum_over_holders(param, gathered, comm);
  }
  for (const at::Tensor& gap : gaps_[unit.index]) gap.zero_();
  is_complete_[unit.index] = true;
}

int Gradients::find(int position, const std::function<bool(const at::Tensor&)>& is_wanted) const {
  for (size_t param = 0; param < uses_.size(); ++param) {
    for (const Use& use : uses_[param]) {
      if (use.position == position && use.has_sum && is_wanted(use.view)) return static_cast<int>(param);
    }
  }
  return -1;
}

std::vector<at::Tensor> Gradients::more_buffers() const {
  std::vector<at::Tensor> buffers;
  for (const auto& uses : uses_) {
    for (size_t k = 1; k < uses.size(); ++k) buffers.push_back(uses[k].view);
  }
  return buffers;
}

}  // namespace zt
