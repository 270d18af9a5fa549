#include "zt/train/tensors.h"

#include "by_hand.h"
#include "options_check.h"
#include "store/whole_tensors.h"
#include "zt/base/error.h"

namespace zt {

// Waits until no action is in flight.
void TrainerTensors::drain() {
  ProgramRuns& runs = unless_dry(running_).runs;
  runs.health().require_alive();
  runs.drain();
}

bool TrainerTensors::has_own_masters() const {
  return store_.plan().main().precision.is_mixed();
}

void TrainerTensors::require_here(const char* what, TrainerData data) const {
  running_->runs.health().require_here(fmt::format("the {} of a tensor", what).c_str(), {data});
}

// Returns what `read` reads. Where the last step failed on this rank only, all ranks throw that read a tensor together.
template <class Of, class Read>
auto TrainerTensors::read(const char* what, const std::string& name, Of of, const Read& read) {
  const int tensor = store_.find(name);
  drain();
  const bool is_of_optimizer = of == Of::states || (of == Of::shards && has_own_masters());
  require_here(what, is_of_optimizer ? TrainerData::optimizer : TrainerData::parameters);
  whole_tensors::require_alike(store_, what, tensor, of, running_->runs.health().half_changed());
  return read(store_, tensor);
}

const std::vector<ModelTensor>& TrainerTensors::all() const {
  return store_.tensors();
}

const ModelTensor& TrainerTensors::at(const std::string& name) const {
  return store_.tensors()[store_.find(name)];
}

at::Tensor TrainerTensors::parameter(const std::string& name) {
  return read("value", name, whole_tensors::Of::layers, whole_tensors::parameter);
}

at::Tensor TrainerTensors::master(const std::string& name) {
  return read("master value", name, whole_tensors::Of::shards, whole_tensors::master);
}

at::Tensor TrainerTensors::gradient(const std::string& name) {
  require_optimizer(store_.plan(), "gradient");
  const int param = store_.find_parameter(name, "gradient");
  const ParamInfo& info = store_.info(param);
  if (!info.trainable) misuse("parameter '{}' is frozen: it has no gradient", name);
  unless_dry(running_).by_hand.refuse_gradient();
  drain();
  require_here("gradient", TrainerData::gradients);
  std::string complaint = running_->runs.health().half_changed();
  if (complaint.empty() && running_->runs.has_partial_gradients() && !running_->by_hand.is_under_way())
    complaint = "trainer:gradient: the last step failed, so there is no gradient: run a step first";
  whole_tensors::require_alike(store_, "gradient", param, whole_tensors::Of::shards, complaint);
  if (store_.unit_of(param).plan.state != Residence::sharded) running_->runs.parts().gradients.complete(info.unit);
  const at::Tensor sum = whole_tensors::gradient_shards(store_, param);
  const bool is_short = sum.element_size() < 4;
  return (is_short ? sum.to(at::kFloat) : sum).div_(store_.state().grad_divisor);
}

std::map<std::string, at::Tensor> TrainerTensors::optimizer_state(const std::string& name) {
  return read("optimizer state", name, whole_tensors::Of::states, whole_tensors::optimizer_state);
}

// Returns this rank's values of a buffer that is not sharded; undefined if it has none.
static at::Tensor own_buffer(const StepState& state, const std::string& name, const std::string& owner) {
  const ResourceId type = resource_id(name);
  for (const auto& [buffer, values] : state.pass_buffers) {
    const bool is_it = buffer.type == type && buffer.residence != BufferResidence::sharded &&
                       owner_name(type_of(type).index, buffer.index, *state.model) == owner;
    if (is_it) return values;
  }
  return {};
}

static bool is_sharded_buffer(const Store& store, const std::string& name) {
  return std::ranges::any_of(store.plan().programs_of_ranks(), [type = resource_id(name)](const auto& program) {
    return std::ranges::any_of(program->buffers, [type](const PassBuffer& buffer) {
      return buffer.type == type && buffer.residence == BufferResidence::sharded;
    });
  });
}

at::Tensor TrainerTensors::pass_buffer(const std::string& buffer, const std::string& owner) {
  if (const at::Tensor own = own_buffer(store_.state(), buffer, owner); own.defined()) {
    drain();
    require_here("buffer of a pass", TrainerData::optimizer);
    return own.clone();
  }
  if (owner.empty())
    misuse("no pass has a buffer '{}' of the run: name the parameter, unit, position or layer that it is of", buffer);
  if (!is_sharded_buffer(store_, buffer)) {
    const Index of = type_of(resource_id(buffer)).index;
    misuse("no pass gives this rank a buffer '{}' of '{}'{}", buffer, owner,
           of == Index::none ? ": it is one of the run, so give no owner"
                             : fmt::format(": give the name of a {} that has one on this rank", word_of(of)));
  }
  store_.find_parameter(owner, "buffer of a pass");
  return read("buffer of a pass", owner, whole_tensors::Of::shards,
              [&](const Store& store, int param) { return whole_tensors::pass_buffer(store, buffer, param); });
}

// Returns why this rank cannot change values; empty if it can. The other ranks may not know of it.
std::string TrainerTensors::prepare_change(const char* call, const std::set<TrainerData>& needed) {
  unless_dry(running_).by_hand.refuse(call);
  drain();
  running_->runs.health().require_here(call, needed);
  return running_->runs.health().half_changed();
}

void TrainerTensors::set_parameter(const std::string& name, const at::Tensor& values, std::optional<int> from) {
  const int tensor = store_.find(name);
  std::set<TrainerData> needed{TrainerData::parameters};
  if (has_own_masters() && store_.plan().trains()) needed.insert(TrainerData::optimizer);
  const std::string complaint = prepare_change("trainer:set_parameter", needed);
  running_->runs.health().guard([&] { whole_tensors::set_parameter(store_, tensor, {values, from, complaint}); });
}

void TrainerTensors::set_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& values,
                                         std::optional<int> from) {
  const int param = store_.find_parameter(name, "optimizer state");
  const std::string complaint = prepare_change("trainer:set_optimizer_state", {TrainerData::optimizer});
  running_->runs.health().guard([&] { whole_tensors::set_optimizer_state(store_, param, state, {values, from, complaint}); });
}

}  // namespace zt
