#include "activations.h"

#include <ATen/ops/empty.h>

#include "execute/compute.h"
#include "execute/step_handlers.h"
#include "model/unit_build.h"
#include "plan/meta_watch.h"
#include "zt/base/error.h"

namespace zt {

namespace {

class IgnoredAction : public ActionHandler {
 public:
  Work start(const Action&, StepState&) override { return {}; }
};

at::Tensor meta_buffer(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

// Makes the model's parameters meta tensors until it is destroyed.
class MetaParameters {
 public:
  MetaParameters(const Model& model, const std::vector<Unit>& units) : model_(model) {
    for (size_t i = 0; i < model.params().size(); ++i) {
      Param& param = *model.params()[i];
      const ParamInfo& info = model.info().params[i];
      held_.push_back(param.values);
      if (units[info.unit].plan.held) param.values = leaf_of(info, units[info.unit].full);
    }
  }
  ~MetaParameters() {
    for (size_t i = 0; i < held_.size(); ++i) model_.params()[i]->values = held_[i];
  }
  MetaParameters(const MetaParameters&) = delete;
  MetaParameters& operator=(const MetaParameters&) = delete;

 private:
  const Model& model_;
  std::vector<at::Tensor> held_;
};

std::vector<Unit> units_on_meta(const ModelInfo& model, const Program& program, const RankUnits& held) {
  std::vector<Unit> units;
  for (const Unit& real : held.units) {
    Unit& unit = units.emplace_back(real);
    const auto shared = [&](const Slots& slots, at::ScalarType dtype) {
      return slots.of_unit[unit.index] < 0 ? at::Tensor() : meta_buffer(unit.layout.padded(), dtype);
    };
    if (unit.is_node_shared()) unit.plan.params = Residence::whole;
    allocate_unit(
        unit, model.units[unit.index], program.precision, {}, meta_buffer,
        {shared(held.slots.parameters, program.precision.params), shared(held.slots.gradients, program.precision.grads)});
  }
  return units;
}

// Runs the layers' actions; the program's other actions do nothing.
Executor::Handlers compute_only(const Program& program, const std::shared_ptr<ComputeState>& compute) {
  Executor::Handlers handlers = step_handlers(compute, std::make_shared<Normalisation>(), nullptr, {});
  for (const Action& action : program.actions) {
    if (role_of(action) != Role::compute) handlers[action.kind] = std::make_shared<IgnoredAction>();
  }
  return handlers;
}

}  // namespace

int64_t predict_activations(const std::shared_ptr<Model>& model, const Program& program, const RankUnits& held,
                            const std::function<Communicator&(const std::vector<std::string>&)>& comm, const Batch& fields) {
  const ModelInfo& info = model->info();
  StepState state;
  state.model = &info;
  state.comm = comm;
  state.units = units_on_meta(info, program, held);
  const MetaParameters parameters(*model, state.units);
  const auto compute = std::make_shared<ComputeState>(model, state, positions_run(program, info));
  const auto complete = [&](int unit) { compute->gradients().complete(unit); };
  Executor executor(program, info, compute_only(program, compute), complete, nullptr);
  const MetaWatch watch;
  compute->begin(fields, program, 0);
  int at = 0;
  try {
    for (const int n = static_cast<int>(program.actions.size()); at < n; ++at) executor.run(state, at, at + 1);
  } catch (const std::exception& error) {  // an operator without a meta kernel throws through the layer's own code
    misuse("layer '{}' cannot be planned: it does not run on tensors without memory (device meta): {}",
           info.positions[program.actions[at].target].name, describe(error));
  }
  return watch.peak_bytes();
}

}  // namespace zt
