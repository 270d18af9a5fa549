// Looking at and changing a trainer's tensors by name: scripts, checkpoints.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "compute.h"
#include "zt/error.h"
#include "zt/tensor.h"
#include "zt/trainer.h"

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

// [padded] what all ranks hold of the unit, in rank order. Collective over the axis that cuts it.
at::Tensor Trainer::gather(const Unit& unit, const at::Tensor& chunk) const {
  const at::Tensor whole = at::empty({unit.layout.padded()}, chunk.options());
  state_.comm({training_.units[unit.index].axis}).all_gather(whole, chunk).synchronize();
  return whole;
}

at::Tensor Trainer::parameter(const std::string& name) {
  const int index = find_param(name);
  drain();
  const ParamInfo& param = state_.model->params[index];
  if (!training_.units[param.unit].param_sharded) return spec_->model()->params()[index]->get().detach().clone();
  const Unit& unit = state_.units[param.unit];
  return gather(unit, unit.master).narrow(0, param.offset, param.numel).view(param.shape).clone();
}

at::Tensor Trainer::gradient(const std::string& name) {
  const ParamInfo& param = state_.model->params[find_param(name)];
  if (!param.trainable) misuse("parameter '{}' is frozen: it has no gradient", name);
  // To look at a sum ends it: what comes later would start a new one.
  const bool is_part = hand_phase_ != HandPhase::idle || (hand_micro_batch_ > 0 && hand_micro_batch_ < spec_->micro_batches());
  refuse_by_hand(is_part, "gradient");
  drain();
  const Unit& unit = state_.units[param.unit];
  if (!training_.units[param.unit].state_sharded) compute_->gradients().complete(param.unit);
  const at::Tensor flat = training_.units[param.unit].state_sharded ? gather(unit, unit.grad_shard) : unit.grad;
  return flat.narrow(0, param.offset, param.numel).view(param.shape).clone();
}

void Trainer::set_parameter(const std::string& name, const at::Tensor& values) {
  const int index = find_param(name);
  const ParamInfo& param = state_.model->params[index];
  if (values.sizes() != at::IntArrayRef(param.shape)) {
    misuse("parameter '{}' is {}{}, the values are {}", name, dtype_name(state_.units[param.unit].full.scalar_type()),
           fmt::format("[{}]", fmt::join(param.shape, ", ")), describe(values));
  }
  refuse_by_hand(hand_micro_batch_ != 0 || hand_phase_ != HandPhase::idle, "set_parameter");
  drain();
  if (!training_.units[param.unit].param_sharded) {
    spec_->model()->params()[index]->get().detach().copy_(values.detach());
    return;
  }
  const Piece owned = piece_of(index, state_.units[param.unit].master);
  at::Tensor(owned.data).copy_(values.detach().reshape({param.numel}).narrow(0, owned.first, owned.count));
}

// The part of parameter `param` that lies in this rank's shard, as a piece of the logical tensor; `chunk` is the shard's buffer.
Piece Trainer::piece_of(int index, const at::Tensor& chunk) const {
  const ParamInfo& param = state_.model->params[index];
  const Unit& unit = state_.units[param.unit];
  const int64_t shard_begin = unit.layout.begin(unit.rank), shard_end = unit.layout.end(unit.rank);
  const int64_t begin = std::clamp(shard_begin - param.offset, int64_t{0}, param.numel);
  const int64_t end = std::clamp(shard_end - param.offset, begin, param.numel);
  const int64_t place = begin < end ? param.offset + begin - shard_begin : 0;
  Box whole{std::vector<int64_t>(param.shape.size(), 0), param.shape};
  return {{std::move(whole)}, begin, end - begin, chunk.narrow(0, place, end - begin)};
}

void Trainer::visit(Visitor& visitor) {
  drain();
  const Coord coord = spec_->coord();
  for (size_t i = 0; i < state_.model->params.size(); ++i) {
    const ParamInfo& param = state_.model->params[i];
    const Unit& unit = state_.units[param.unit];
    const std::string& sharded_over =
        training_.units[param.unit].state_sharded ? training_.units[param.unit].axis : std::string();
    bool is_owner = true;
    for (const auto& axis : coord.shape.axes()) is_owner = is_owner && (axis.name == sharded_over || coord[axis.name] == 0);
    visitor.tensor("model/" + param.name, param.shape, piece_of(static_cast<int>(i), unit.master), is_owner);
    for (const auto& [name, buffer] : unit.state) {
      visitor.tensor("optimizer/" + name + "/" + param.name, param.shape, piece_of(static_cast<int>(i), buffer), is_owner);
    }
  }
  Value step(state_.step), updates(updates_done_);
  visitor.value("trainer/step", step);
  visitor.value("trainer/updates", updates);
  state_.step = *step.get_if<int64_t>();
  updates_done_ = *updates.get_if<int64_t>();
}

}  // namespace zt
