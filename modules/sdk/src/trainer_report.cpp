// What a person wants to know before anything runs: model, actions, bytes on the wire, bytes held.
#include <map>
#include <set>

#include "compute.h"
#include "zt/error.h"
#include "zt/tensor.h"
#include "zt/trainer.h"

namespace zt {

namespace {

// What one rank sends in a step, by kind: ring costs, 2 (W - 1) / W of an all_reduce's bytes, (W - 1) / W of the others'.
std::map<std::string, int64_t> wire_bytes(const Program& program, const StepState& state, const Coord& coord, int64_t element) {
  std::map<std::string, int64_t> bytes;
  const Kinds& kinds = Kinds::get();
  for (const Action& action : program.actions) {
    if (action.kind != kinds.reduce_grad && action.kind != kinds.unshard) continue;
    int64_t ranks = 1;
    for (const auto& axis : action.axes()) ranks *= coord.size(axis);
    for (const int unit : action.units()) {
      const bool is_all_reduce = action.kind == kinds.reduce_grad && !program.units[unit].state_sharded;
      const int64_t size = state.units[unit].layout.padded() * element;
      bytes[kind(action.kind).name] += (is_all_reduce ? 2 : 1) * size * (ranks - 1) / ranks;
    }
  }
  return bytes;
}

// Units that keep a sum beside their gradient, because each micro-batch is reduced by itself.
std::set<int> units_summed_apart(const Program& program) {
  std::set<int> units;
  for (const Action& action : program.actions) {
    if (action.kind != Kinds::get().reduce_grad || action.attr("sum").empty()) continue;
    for (const int unit : action.units()) units.insert(unit);
  }
  return units;
}

}  // namespace

std::vector<MemoryLine> Trainer::memory() const {
  MemoryLine parameters{"parameters", 0, 0}, gradients{"gradients", 0, 0}, optimizer{"optimizer", 0, 0};
  const MemoryLine activations{"activations", -1, activations_.peak_bytes()};
  const auto element = static_cast<int64_t>(c10::elementSize(dtype_of(spec_->precision())));
  const auto states = static_cast<int64_t>(options_.optimizer->state_names().size());
  for (const Unit& unit : state_.units) {
    const bool is_trainable = state_.model->units[unit.index].trainable;
    parameters.predicted += unit.layout.padded() * element;
    if (is_trainable) gradients.predicted += unit.layout.padded() * element;
    if (is_trainable) optimizer.predicted += unit.layout.chunk * element * states;
    if (unit.full.defined()) parameters.measured += static_cast<int64_t>(unit.full.storage().nbytes());
    if (unit.grad.defined()) gradients.measured += static_cast<int64_t>(unit.grad.storage().nbytes());
    if (unit.grad_sum.defined()) gradients.measured += static_cast<int64_t>(unit.grad_sum.storage().nbytes());
    for (const auto& [name, buffer] : unit.state) optimizer.measured += static_cast<int64_t>(buffer.storage().nbytes());
  }
  for (const ParamInfo& param : state_.model->params) {
    if (param.trainable) gradients.predicted += static_cast<int64_t>(param.positions.size() - 1) * param.numel * element;
  }
  for (const int unit : units_summed_apart(training_)) gradients.predicted += state_.units[unit].layout.chunk * element;
  if (compute_) gradients.measured += compute_->gradients().extra_bytes();
  std::vector<MemoryLine> lines{parameters, gradients, optimizer, activations};
  if (options_.dry) {
    for (auto& line : lines) line.measured = -1;
  }
  return lines;
}

std::string Trainer::report() const {
  const Coord coord = spec_->coord();
  std::map<std::string, int> counts;
  for (const Action& action : training_.actions) ++counts[kind(action.kind).name];
  std::string actions;
  for (const auto& [name, count] : counts) actions += fmt::format("{}{} {}", actions.empty() ? "" : ", ", count, name);

  std::string text = spec_->model()->summary();
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += fmt::format("mesh      {}\n", coord.shape.axes().empty() ? "one rank" : coord.shape.text());
  for (const auto& pass : spec_->passes()) text += fmt::format("pass      {} ({})\n", pass->name(), phase_name(pass->phase()));
  text += fmt::format("step      {} micro-batches, {} actions: {}\n", spec_->micro_batches(), training_.actions.size(), actions);
  const auto element = static_cast<int64_t>(c10::elementSize(dtype_of(spec_->precision())));
  const auto wire = wire_bytes(training_, state_, coord, element);
  for (const auto& [name, bytes] : wire) text += fmt::format("wire      {} {} sent a step and rank\n", name, human_bytes(bytes));
  for (const MemoryLine& line : memory()) {
    if (line.predicted >= 0) text += fmt::format("memory    {:<12} {} a rank\n", line.kind, human_bytes(line.predicted));
  }
  return text;
}

}  // namespace zt
