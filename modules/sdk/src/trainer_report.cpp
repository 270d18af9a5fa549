// What a person wants to know before anything runs: model, actions, bytes on the wire, bytes held.
#include <map>

#include "compute.h"
#include "zt/error.h"
#include "zt/trainer.h"

namespace zt {

namespace {

std::string human_bytes(int64_t bytes) {
  if (bytes < 0) return "-";
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

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

}  // namespace

std::vector<MemoryLine> Trainer::memory() const {
  MemoryLine parameters{"parameters", 0, 0}, gradients{"gradients", 0, 0}, optimizer{"optimizer", 0, 0};
  const auto element = static_cast<int64_t>(c10::elementSize(dtype_of(spec_->precision())));
  const auto states = static_cast<int64_t>(options_.optimizer->state_names().size());
  for (const Unit& unit : state_.units) {
    const bool is_trainable = state_.model->units[unit.index].trainable;
    parameters.predicted += unit.layout.padded() * element;
    if (is_trainable) gradients.predicted += unit.layout.padded() * element;
    if (is_trainable) optimizer.predicted += unit.layout.chunk * element * states;
    if (unit.full.defined()) parameters.measured += static_cast<int64_t>(unit.full.storage().nbytes());
    if (unit.grad.defined()) gradients.measured += static_cast<int64_t>(unit.grad.storage().nbytes());
    for (const auto& [name, buffer] : unit.state) optimizer.measured += static_cast<int64_t>(buffer.storage().nbytes());
  }
  for (const ParamInfo& param : state_.model->params) {
    if (param.trainable) gradients.predicted += static_cast<int64_t>(param.positions.size() - 1) * param.numel * element;
  }
  if (compute_) gradients.measured += compute_->gradients().extra_bytes();
  std::vector<MemoryLine> lines{parameters, gradients, optimizer};
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
  for (const MemoryLine& line : memory())
    text += fmt::format("memory    {:<12} {} a rank\n", line.kind, human_bytes(line.predicted));
  return text;
}

}  // namespace zt
