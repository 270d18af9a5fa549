// What the ranks would do, hold and send; a step on tensors without memory.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "execute/compute.h"
#include "execute/step_handlers.h"
#include "model/unit_build.h"
#include "plan/meta_watch.h"
#include "plan/rank_plan.h"
#include "zt/base/error.h"
#include "zt/plan/slots.h"
#include "zt/train/trainer.h"

namespace zt {

namespace {

class Nothing : public ActionHandler {
 public:
  Work start(const Action&, StepState&) override { return {}; }
};

at::Tensor on_meta_buffer(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

// The fields of `times` such batches, behind each other.
Batch on_meta(const Batch& batch, int times) {
  Batch fields;
  for (const auto& [name, field] : batch) {
    std::vector<int64_t> sizes = field.sizes().vec();
    sizes[0] *= times;
    fields[name] = at::empty(sizes, field.options().device(at::kMeta));
  }
  return fields;
}

// The trainer's parameters are meta tensors while it lives.
class MetaParameters {
 public:
  MetaParameters(const Model& model, const std::vector<Unit>& units) : model_(model) {
    for (size_t i = 0; i < model.params().size(); ++i) {
      Param& param = *model.params()[i];
      const ParamInfo& info = model.info().params[i];
      held_.push_back(param.values);
      param.values = leaf_of(info, units[info.unit].full);
    }
  }
  ~MetaParameters() {
    for (size_t i = 0; i < held_.size(); ++i) model_.params()[i]->values = held_[i];
  }

 private:
  const Model& model_;
  std::vector<at::Tensor> held_;
};

// "0-511" or "0, 4, 8": ascending numbers.
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[begin]);
    if (end > begin) text += fmt::format("-{}", numbers[end]);
    begin = end + 1;
  }
  return text;
}

Value::Table table_of(const std::map<std::string, int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

}  // namespace

// Keeps the shapes for which memory() predicts activations: those of `times` such batches. Called each step: the same ones cost
// comparisons only.
void Trainer::note_shapes(const Batch& batch, int times) {
  const bool are_noted = batch.size() == shapes_.size() && std::all_of(batch.begin(), batch.end(), [&](const auto& field) {
                           const auto noted = shapes_.find(field.first);
                           return noted != shapes_.end() && noted->second.sizes().slice(1) == field.second.sizes().slice(1) &&
                                  noted->second.size(0) == times * field.second.size(0);
                         });
  if (are_noted) return;
  predicted_activations_ = -1;
  shapes_ = on_meta(batch, times);
}

int64_t Trainer::predict_activations(const Batch& batch) {
  check_batch(batch, spec_->micro_batches());
  note_shapes(batch);
  return predicted_activations_ = run_on_meta(Mode::train, shapes_);
}

int64_t Trainer::run_on_meta(Mode mode, const Batch& fields) {
  return run_on_meta(program(mode), RankUnits{state_.units, *slots_}, fields);
}

// The peak of the bytes that `program`, of the rank that holds `held`, allocates for its forwards and backwards.
int64_t Trainer::run_on_meta(const Program& program, const RankUnits& held, const Batch& fields) {
  const ModelInfo& info = *state_.model;
  StepState state;
  state.model = &info;
  state.comm = state_.comm;
  for (const Unit& real : held.units) {
    Unit& unit = state.units.emplace_back(real);
    const auto slot = [&](const Slots& slots, at::ScalarType dtype) {
      return slots.of_unit[unit.index] < 0 ? at::Tensor() : on_meta_buffer(unit.layout.padded(), dtype);
    };
    unit.node_shared = false;
    allocate_unit(unit, info.units[unit.index], program.precision, {}, on_meta_buffer,
                  {slot(held.slots.parameters, program.precision.params), slot(held.slots.gradients, program.precision.grads)});
  }
  const MetaParameters parameters(*spec_->model(), state.units);
  const auto compute = std::make_shared<ComputeState>(spec_->model(), state);
  Executor::Handlers handlers = step_handlers(compute, std::make_shared<Normalisation>(), options_.optimizer, {});
  const Kinds& kinds = Kinds::get();
  for (const Action& action : program.actions) {
    const bool computes = action.kind == kinds.forward || action.kind == kinds.backward || action.kind == kinds.recompute;
    if (!computes) handlers[action.kind] = std::make_shared<Nothing>();
  }
  Executor executor(
      program, info, handlers, [&](int unit) { compute->gradients().complete(unit); }, nullptr);
  const MetaWatch watch;
  compute->begin(fields, program.mode, program.micro_batches, 0);
  int at = 0;
  try {
    for (const int n = static_cast<int>(program.actions.size()); at < n; ++at) executor.run(state, at, at + 1);
  } catch (const std::exception& error) {  // of an operator that has no meta kernel, on its way through the layer's own code
    misuse("layer '{}' cannot be planned: it does not run on tensors without memory (device meta): {}",
           info.positions[program.actions[at].target].name, describe(error));
  }
  return watch.peak_bytes();
}

Value Trainer::plan(const Batch& batch) {
  check_batch(batch, spec_->micro_batches());
  const MeshShape shape = spec_->coord().shape;
  const auto programs = spec_->build_all(Mode::train);
  std::vector<std::vector<int>> ranks_of;  // of one program each, in the order of their first
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    const auto alike = std::ranges::find_if(ranks_of, [&](const auto& ranks) { return programs[ranks[0]] == programs[rank]; });
    if (alike == ranks_of.end()) ranks_of.push_back({rank});
    else alike->push_back(rank);
  }
  Value::List kinds;
  for (const std::vector<int>& ranks : ranks_of) {
    const Coord coord{shape, ranks.front()};
    const Program& training = *programs[ranks.front()];
    const RankUnits held = describe_rank(coord);
    const RankPlan plan = plan_rank(*state_.model, training, held, *options_.optimizer, coord);
    std::map<std::string, int64_t> memory(plan.held.begin(), plan.held.end());
    memory["activations"] = run_on_meta(training, held, on_meta(batch, 1));
    int64_t total = 0;
    for (const auto& [kind, bytes] : memory) total += bytes;
    memory["total"] = total;
    kinds.push_back(Value::Table{{"ranks", ranges(ranks)},
                                 {"count", static_cast<int64_t>(ranks.size())},
                                 {"memory", table_of(memory)},
                                 {"actions", table_of(plan.actions)},
                                 {"sent", table_of(plan.sent)}});
  }
  return kinds;
}

}  // namespace zt
