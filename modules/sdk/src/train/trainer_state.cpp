// Looking at and changing a trainer's tensors by name: scripts, checkpoints.
#include <ATen/ops/empty.h>

#include "execute/compute.h"
#include "execute/step_handlers.h"
#include "model/unit_build.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/process/log.h"
#include "zt/train/trainer.h"

namespace zt {

int Trainer::find_param(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < state_.model->params.size(); ++i) {
    if (state_.model->params[i].name == name) return static_cast<int>(i);
    names.push_back(state_.model->params[i].name);
  }
  const std::string found = nearest(name, names);
  misuse("the model has no parameter '{}'{}", name,
         found.empty() ? std::string(": print(model) lists them") : fmt::format(": did you mean '{}'?", found));
}

// The whole parameter of what all ranks hold in `chunk`. Collective over the axis that cuts it.
at::Tensor Trainer::whole(int index, const at::Tensor& chunk) const {
  const ParamInfo& param = state_.model->params[index];
  const Unit& unit = state_.units[param.unit];
  at::Tensor all = chunk;
  if (unit.layout.ranks > 1) {
    all = at::empty({unit.layout.padded()}, chunk.options());
    axis_of(unit).all_gather(all, chunk).synchronize();
  }
  return all.narrow(0, param.offset, param.numel).view(param.shape).clone();
}

at::Tensor Trainer::parameter(const std::string& name) {
  const int index = find_param(name);
  drain();
  const Unit& unit = state_.units[state_.model->params[index].unit];
  return unit.owns_shard() ? whole(index, unit.shard) : spec_->model()->params()[index]->get().detach().clone();
}

at::ScalarType Trainer::dtype(const std::string& name) const {
  const int index = find_param(name);
  const Unit& unit = state_.units[state_.model->params[index].unit];
  return unit.owns_shard() ? unit.shard.scalar_type() : spec_->model()->params()[index]->get().scalar_type();
}

const ParamInfo& Trainer::param_info(const std::string& name) const {
  return state_.model->params[find_param(name)];
}

at::Tensor Trainer::master(const std::string& name) {
  const int index = find_param(name);
  drain();
  return whole(index, state_.units[state_.model->params[index].unit].master);
}

at::Tensor Trainer::gradient(const std::string& name) {
  const int index = find_param(name);
  const ParamInfo& param = state_.model->params[index];
  if (!param.trainable) misuse("parameter '{}' is frozen: it has no gradient", name);
  // To look at a sum ends it: what comes later would start a new one.
  if (hand_phase_ != HandPhase::idle || (hand_micro_batch_ > 0 && hand_micro_batch_ < spec_->micro_batches())) {
    misuse(
        "trainer:gradient: forward / backward by hand are under way, {} of {} micro-batches are done: ask after the last backward",
        hand_micro_batch_, spec_->micro_batches());
  }
  drain();
  const Unit& unit = state_.units[param.unit];
  if (!program(Mode::train).units[param.unit].state_sharded) compute_->gradients().complete(param.unit);
  const at::Tensor sum = whole(index, unit.grad_shard);
  const bool is_short = sum.element_size() < 4;
  return (is_short ? sum.to(at::kFloat) : sum).div_(state_.grad_divisor);
}

std::map<std::string, at::Tensor> Trainer::optimizer_state(const std::string& name) {
  const int index = find_param(name);
  drain();
  std::map<std::string, at::Tensor> state;
  for (const auto& [key, buffer] : state_.units[state_.model->params[index].unit].state) state[key] = whole(index, buffer);
  return state;
}

// Before parameters are written from outside: ranks that share them may still read them. Collective.
void Trainer::await_readers() const {
  for (const Unit& unit : state_.units) {
    if (unit.node_shared) return axis_of(unit).barrier();
  }
}

// The values that all ranks set. What is wrong with the ones of rank `from` is heard by all.
at::Tensor Trainer::agree(int index, const at::Tensor& values, std::optional<int> from) const {
  const ParamInfo& param = state_.model->params[index];
  std::string complaint;
  if (values.sizes() != at::IntArrayRef(param.shape))
    complaint =
        fmt::format("parameter '{}' is [{}], the values are {}", param.name, fmt::join(param.shape, ", "), describe(values));
  const int ranks = spec_->coord().shape.world_size();
  if (from && (*from < 0 || *from >= ranks)) misuse("there is no rank {} to take values from: the mesh has {}", *from, ranks);
  const bool is_taken = from && spec_->mesh();
  if (is_taken) complaint = *spec_->mesh()->world()->communicator->all_gather_values(complaint)[*from].get_if<std::string>();
  if (!complaint.empty()) misuse("{}", complaint);
  if (!is_taken) return values.detach();
  const bool is_mine = spec_->coord().rank == *from;
  const at::Tensor agreed = is_mine ? values.detach().to(program(Mode::train).precision.master(), false, true).contiguous()
                                    : at::empty(param.shape, at::TensorOptions().dtype(program(Mode::train).precision.master()));
  spec_->mesh()->world()->communicator->broadcast(agreed, *from).synchronize();
  return agreed;
}

void Trainer::set_owned(int index, const at::Tensor& chunk, const at::Tensor& values) const {
  const ParamInfo& param = state_.model->params[index];
  const Piece owned = piece_of(index, chunk);
  at::Tensor(owned.data).copy_(values.reshape({param.numel}).narrow(0, owned.first, owned.count));
}

void Trainer::set_parameter(const std::string& name, const at::Tensor& given, std::optional<int> from) {
  const int index = find_param(name);
  refuse_by_hand(is_by_hand_under_way(), "set_parameter");
  drain();
  const at::Tensor values = agree(index, given, from);
  const Unit& unit = state_.units[state_.model->params[index].unit];
  if (unit.node_shared) axis_of(unit).barrier();  // others may still read them
  set_owned(index, unit.master, values);
  set_owned(index, unit.shard, values);
  if (unit.node_shared) axis_of(unit).barrier();
  else if (!unit.owns_shard()) spec_->model()->params()[index]->get().detach().copy_(values);
}

void Trainer::set_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& values,
                                  std::optional<int> from) {
  const int index = find_param(name);
  refuse_by_hand(is_by_hand_under_way(), "set_optimizer_state");
  drain();
  const auto& buffers = state_.units[state_.model->params[index].unit].state;
  const auto found = buffers.find(state);
  if (found == buffers.end()) {
    std::vector<std::string> names;
    for (const auto& [key, buffer] : buffers) names.push_back(key);
    misuse("the optimizer keeps no '{}' for parameter '{}'{}", state, name, suggest(state, names));
  }
  set_owned(index, found->second, agree(index, values, from));
}

// The part of parameter `param` that lies in this rank's shard, as a piece of the logical tensor; `chunk` is the shard's buffer.
Piece Trainer::piece_of(int index, const at::Tensor& chunk) const {
  const ParamInfo& param = state_.model->params[index];
  const OwnedRun owned = owned_run(param, state_.units[param.unit]);
  Box whole{std::vector<int64_t>(param.shape.size(), 0), param.shape};
  return {{std::move(whole)}, owned.first, owned.count, chunk.narrow(0, owned.place, owned.count)};
}

namespace {

// The dims' meaning, whether it is trained, and for tied weights the layers that share it.
Value::Table attributes_of(const ParamInfo& param, const ModelInfo& model) {
  Value::Table attributes{{"trainable", param.trainable}};
  if (!param.dims.empty()) attributes["dims"] = Value::List(param.dims.begin(), param.dims.end());
  if (param.positions.size() > 1) {
    Value::List layers;
    for (const int position : param.positions) layers.emplace_back(model.positions[position].name);
    attributes["tied"] = std::move(layers);
  }
  return attributes;
}

}  // namespace

void Trainer::visit(Visitor& visitor) {
  if (visitor.is_load()) refuse_by_hand(is_by_hand_under_way(), "visit");
  drain();
  if (visitor.is_load()) await_readers();
  visitor.kind("trainer/optimizer", options_.optimizer->kind(), {"optimizer/", "trainer/updates"});
  for (size_t i = 0; i < state_.model->params.size(); ++i) {
    const ParamInfo& param = state_.model->params[i];
    const Unit& unit = state_.units[param.unit];
    visitor.tensor("model/" + param.name, param.shape, piece_of(static_cast<int>(i), unit.master));
    visitor.attributes(attributes_of(param, *state_.model));
    for (const auto& [name, buffer] : unit.state) {
      visitor.tensor("optimizer/" + name + "/" + param.name, param.shape, piece_of(static_cast<int>(i), buffer));
    }
  }
  visitor.end_of_tensors();
  Value step(state_.step), updates(updates_done_), scale(loss_scale_ ? loss_scale_->state() : Value());
  Value lr = lr_ ? Value(*lr_) : Value();
  Value seed_exponent = normalisation_->seed_exponent ? Value(*normalisation_->seed_exponent) : Value();
  visitor.value("trainer/step", step);
  visitor.value("trainer/updates", updates);
  visitor.value("trainer/seed_exponent", seed_exponent);
  visitor.value("trainer/loss_scale", scale);
  visitor.value("trainer/lr", lr);
  Value products = to_value(gemm_choice());
  visitor.value("trainer/gemm", products);
  if (!visitor.is_load()) return;
  const std::vector<std::string> others = differing_gemm_groups(products);
  if (!others.empty() && place().rank == 0) {
    log(LogLevel::warn, place(),
        fmt::format("this process multiplies {} by other providers than the run that was saved did: sums have other bits",
                    fmt::join(others, ", ")));
  }
  convert(step, "trainer/step", state_.step);
  convert(updates, "trainer/updates", updates_done_);
  convert(seed_exponent, "trainer/seed_exponent", normalisation_->seed_exponent);
  convert(lr, "trainer/lr", lr_);
  if (loss_scale_ && !scale.is_nil()) loss_scale_->set_state(scale);  // what was saved may have had none
  gather_parameters();
}

}  // namespace zt
