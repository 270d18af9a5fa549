#include "zt/train/tensors.h"

#include "by_hand.h"
#include "options_check.h"
#include "program_runs.h"
#include "store/tensor_changes.h"
#include "store/whole_tensors.h"
#include "zt/base/error.h"

namespace zt {

ProgramRuns& TrainerTensors::runs() const {
  return unless_dry(runs_);
}

// Waits until no action is in flight.
void TrainerTensors::drain() {
  runs().health().require_alive();
  runs().drain();
}

// Returns what `read` reads. Where the last step failed on this rank only, it still takes part, because the other ranks do not
// know, and throws afterwards.
template <class Of, class Read>
auto TrainerTensors::read(const char* what, int tensor, Of of, Read&& read) {
  drain();
  WholeTensors(store_).require_alike(what, tensor, of);
  auto result = read(WholeTensors(store_));
  runs().health().require_sound();
  return result;
}

const std::vector<ModelTensor>& TrainerTensors::all() const {
  return store_.tensors().all();
}

const ModelTensor& TrainerTensors::at(const std::string& name) const {
  return store_.tensors()[store_.tensors().find(name)];
}

at::Tensor TrainerTensors::parameter(const std::string& name) {
  const int tensor = store_.tensors().find(name);
  return read("value", tensor, WholeTensors::Of::layers, [&](const WholeTensors& whole) { return whole.parameter(tensor); });
}

at::Tensor TrainerTensors::master(const std::string& name) {
  const int tensor = store_.tensors().find(name);
  return read("master value", tensor, WholeTensors::Of::shards, [&](const WholeTensors& whole) { return whole.master(tensor); });
}

at::Tensor TrainerTensors::gradient(const std::string& name) {
  require_optimizer(store_.plan(), "gradient");
  const int param = store_.tensors().find_parameter(name, "gradient");
  const ParamInfo& info = store_.info(param);
  if (!info.trainable) misuse("parameter '{}' is frozen: it has no gradient", name);
  unless_dry(by_hand_).refuse_gradient();
  drain();
  runs().health().require_sound();
  if (runs().has_partial_gradients() && !by_hand_->is_under_way())
    misuse("trainer:gradient: the last step failed, so there is no gradient: run a step first");
  WholeTensors(store_).require_alike("gradient", param, WholeTensors::Of::shards);
  if (store_.unit_of(param).plan.state != Residence::sharded) runs().parts().gradients.complete(info.unit);
  const at::Tensor sum = WholeTensors(store_).gradient_shards(param);
  const bool is_short = sum.element_size() < 4;
  return (is_short ? sum.to(at::kFloat) : sum).div_(store_.state().grad_divisor);
}

std::map<std::string, at::Tensor> TrainerTensors::optimizer_state(const std::string& name) {
  const int tensor = store_.tensors().find(name);
  return read("optimizer state", tensor, WholeTensors::Of::shards,
              [&](const WholeTensors& whole) { return whole.optimizer_state(tensor); });
}

void TrainerTensors::prepare_change(const char* call) {
  unless_dry(by_hand_).refuse(call);
  runs().health().require_sound();
  drain();
}

void TrainerTensors::set_parameter(const std::string& name, const at::Tensor& values, std::optional<int> from) {
  const int tensor = store_.tensors().find(name);
  prepare_change("trainer:set_parameter");
  TensorChanges(store_).set_parameter(tensor, values, from);
}

void TrainerTensors::set_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& values,
                                         std::optional<int> from) {
  const int param = store_.tensors().find_parameter(name, "optimizer state");
  prepare_change("trainer:set_optimizer_state");
  TensorChanges(store_).set_optimizer_state(param, state, values, from);
}

}  // namespace zt
