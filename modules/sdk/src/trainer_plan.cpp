// What the ranks would do, hold and send; a step on tensors without memory.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "compute.h"
#include "meta_watch.h"
#include "rank_plan.h"
#include "step_handlers.h"
#include "unit_build.h"
#include "zt/error.h"
#include "zt/gemm.h"
#include "zt/gemm_choice.h"
#include "zt/log.h"
#include "zt/slots.h"
#include "zt/trainer.h"

namespace zt {

namespace {

class Nothing : public ActionHandler {
 public:
  Work start(const Action&, StepState&) override { return {}; }
};

at::Tensor on_meta(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype).device(at::kMeta));
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

// Keeps the shapes for which memory() predicts activations. Called each step: the same ones cost comparisons only.
void Trainer::note_shapes(const Batch& batch) {
  const bool are_noted = batch.size() == shapes_.size() && std::all_of(batch.begin(), batch.end(), [&](const auto& field) {
                           const auto noted = shapes_.find(field.first);
                           return noted != shapes_.end() && noted->second.sizes() == field.second.sizes();
                         });
  if (are_noted) return;
  predicted_activations_ = -1;
  shapes_.clear();
  for (const auto& [name, field] : batch) shapes_[name] = at::empty(field.sizes(), field.options().device(at::kMeta));
}

// Before the first step: a trial where the script asked for one, on the shapes of this step.
void Trainer::settle_products() {
  are_products_settled_ = true;
  std::vector<GemmShape> shapes;
  if (gemm_request() == "auto") {
    const GemmRecorder recorder;
    predicted_activations_ = run_on_meta(shapes_);
    shapes = recorder.shapes();
  }
  const World world = place();
  if (world.size > 1) {
    settle_gemm(shapes, *spec_->mesh()->world()->communicator, world);
  } else if (!shapes.empty()) {
    use_gemm_choice(choose_gemm(shapes, timed_gemm_trial([&](const std::string& line) { log(LogLevel::info, world, line); })));
  }
}

int64_t Trainer::predict_activations(const Batch& batch) {
  check_batch(batch, spec_->micro_batches());
  note_shapes(batch);
  return predicted_activations_ = run_on_meta(shapes_);
}

int64_t Trainer::run_on_meta(const Batch& fields) {
  const ModelInfo& info = *state_.model;
  StepState state;
  state.model = &info;
  state.comm = state_.comm;
  for (const Unit& real : state_.units) {
    Unit& unit = state.units.emplace_back(real);
    const auto slot = [&](const Slots& slots, at::ScalarType dtype) {
      return slots.of_unit[unit.index] < 0 ? at::Tensor() : on_meta(unit.layout.padded(), dtype);
    };
    unit.node_shared = false;
    allocate_unit(unit, info.units[unit.index], training_.precision, {}, on_meta,
                  {slot(slots_->parameters, training_.precision.params), slot(slots_->gradients, training_.precision.grads)});
  }
  const MetaParameters parameters(*spec_->model(), state.units);
  const auto compute = std::make_shared<ComputeState>(spec_->model(), state);
  Executor::Handlers handlers = step_handlers(compute, std::make_shared<Normalisation>(), options_.optimizer, {});
  const Kinds& kinds = Kinds::get();
  for (const Action& action : training_.actions) {
    const bool computes = action.kind == kinds.forward || action.kind == kinds.backward || action.kind == kinds.recompute;
    if (!computes) handlers[action.kind] = std::make_shared<Nothing>();
  }
  Executor executor(
      training_, info, handlers, [&](int unit) { compute->gradients().complete(unit); }, nullptr);
  const MetaWatch watch;
  compute->begin(fields, Mode::train, spec_->micro_batches(), 0);
  int at = 0;
  try {
    for (const int n = static_cast<int>(training_.actions.size()); at < n; ++at) executor.run(state, at, at + 1);
  } catch (const std::exception& error) {  // of an operator that has no meta kernel, on its way through the layer's own code
    misuse("layer '{}' cannot be planned: it does not run on tensors without memory (device meta): {}",
           info.positions[training_.actions[at].target].name, describe(error));
  }
  return watch.peak_bytes();
}

Value Trainer::plan(const Batch& batch) {
  const MeshShape shape = spec_->coord().shape;
  const int64_t activations = predict_activations(batch);
  const auto programs = spec_->build_all(Mode::train);
  std::map<const Program*, std::vector<int>> ranks_of;
  for (int rank = 0; rank < shape.world_size(); ++rank) ranks_of[programs[rank].get()].push_back(rank);
  Value::List kinds;
  for (const auto& [program, ranks] : ranks_of) {
    const Coord coord{shape, ranks.front()};
    const RankPlan plan = plan_rank(*state_.model, *program, describe_rank(coord), *options_.optimizer, coord);
    std::map<std::string, int64_t> memory{{"parameters", plan.parameters}, {"master", plan.master},
                                          {"gradients", plan.gradients},   {"optimizer", plan.optimizer},
                                          {"buckets", plan.buckets},       {"activations", activations}};
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
