// What a person wants to know before anything runs: model, actions, bytes on the wire, bytes held.
#include <map>
#include <set>

#include "compute.h"
#include "zt/error.h"
#include "zt/slots.h"
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

// Units that keep a sum beside their gradient, because each micro-batch is reduced by itself. Sharded gradients are that sum.
std::set<int> units_summed_apart(const Program& program) {
  std::set<int> units;
  for (const Action& action : program.actions) {
    if (action.kind != Kinds::get().reduce_grad || action.attr("sum").empty()) continue;
    for (const int unit : action.units()) {
      if (!program.units[unit].grad_sharded) units.insert(unit);
    }
  }
  return units;
}

// Memory that several tensors may share counts once.
class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes_ += static_cast<int64_t>(tensor.storage().nbytes());
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::set<const c10::StorageImpl*> seen_;
  int64_t bytes_ = 0;
};

}  // namespace

std::vector<MemoryLine> Trainer::memory() const {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype_of(spec_->precision())));
  std::vector<MemoryLine> lines{{"parameters", predicted_parameters() * element, 0},
                                {"gradients", predicted_gradients() * element, 0},
                                {"optimizer", 0, 0},
                                {"activations", -1, activations_.peak_bytes()}};
  MemoryLine &parameters = lines[0], &gradients = lines[1], &optimizer = lines[2];
  Storages of_parameters, of_gradients, of_optimizer;
  for (const Unit& unit : state_.units) {
    if (state_.model->units[unit.index].trainable)
      optimizer.predicted += unit.layout.chunk * element * static_cast<int64_t>(options_.optimizer->state_names().size());
    for (const auto& tensor : {unit.full, unit.master}) of_parameters.add(tensor);
    for (const auto& tensor : {unit.grad, unit.grad_shard, unit.grad_sum}) of_gradients.add(tensor);
    for (const auto& [name, buffer] : unit.state) of_optimizer.add(buffer);
  }
  parameters.measured = of_parameters.bytes();
  gradients.measured = of_gradients.bytes() + (compute_ ? compute_->gradients().extra_bytes() : 0);
  optimizer.measured = of_optimizer.bytes();
  if (options_.dry) {
    for (auto& line : lines) line.measured = -1;
  }
  return lines;
}

// Elements of whole parameters or owned parts, and of the buffers in which whole ones come and go.
int64_t Trainer::predicted_parameters() const {
  int64_t elements = slots_->parameters.total();
  for (const Unit& unit : state_.units)
    elements += slots_->parameters.of_unit[unit.index] < 0 ? unit.layout.padded() : unit.layout.chunk;
  return elements;
}

int64_t Trainer::predicted_gradients() const {
  int64_t elements = slots_->gradients.total();
  for (const Unit& unit : state_.units) {
    if (!state_.model->units[unit.index].trainable) continue;
    elements += slots_->gradients.of_unit[unit.index] < 0 ? unit.layout.padded() : unit.layout.chunk;
  }
  for (const ParamInfo& param : state_.model->params) {
    if (param.trainable) elements += static_cast<int64_t>(param.positions.size() - 1) * param.numel;
  }
  for (const int unit : units_summed_apart(training_)) elements += state_.units[unit].layout.chunk;
  return elements;
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
