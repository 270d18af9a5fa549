#include "layer_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

const at::Tensor& ComputeState::LayerContext::param(const Param& param) {
  return compute_.state_.parameters[compute_.index_of(position_index_, param)];
}

const at::Tensor& ComputeState::LayerContext::buffer(const std::string& name) {
  const ModelInfo& model = compute_.model_info();
  const PositionInfo& position = model.positions[position_index_];
  for (size_t i = 0; i < model.buffers.size(); ++i) {
    if (model.buffers[i].layer == position.layer && model.buffers[i].local_name == name) return compute_.state_.buffers[i];
  }
  misuse("layer '{}' reads the buffer '{}', which its buffers() does not list: add it there", position.name, name);
}

at::Tensor ComputeState::LayerContext::batch(const std::string& name) {
  if (const auto found = fields().find(name); found != fields().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, unused] : fields()) names.push_back(known);
  misuse("layer '{}' needs the batch field '{}', which the batch does not have{}",
         compute_.model_->positions()[position_index_].name, name, suggest(name, names));
}

int64_t ComputeState::LayerContext::first_sample() const {
  return compute_.parts_.at(static_cast<size_t>(micro_batch_index_)).first_sample;
}

Philox ComputeState::LayerContext::rng(Purpose purpose) const {
  const auto place = static_cast<uint64_t>(position_index_);
  return Philox::keyed(compute_.model_->seed(), purpose, place, static_cast<uint64_t>(step));
}

void ComputeState::LayerContext::loss(const std::string& name, at::Tensor sum, Per per) {
  if (sum.dim() != 0) misuse("the loss '{}' must be a scalar (a sum over tokens or samples), got {}", name, describe(sum));
  const PositionInfo& info = compute_.model_info().positions[position_index_];
  if (std::ranges::find(info.losses, LossInfo{name, per}) == info.losses.end())
    misuse(
        "the loss '{}' per {} is not declared: give it in the layer's io, in Lua as nn.layer{{io = {{losses = {{{} = \"{}\"}}}}}}",
        name, name_of(per), name, name_of(per));
  if (sum.requires_grad()) compute_.values(position_index_, micro_batch_index_).roots.push_back({sum, per});
  if (recompute) return;
  const bool is_by_hand = compute_.is_by_hand_ && compute_.mode_ == Mode::train;
  at::Tensor value = sum.detach().to(at::kDouble);
  if (is_by_hand) value = value * compute_.seeds_.of(per);
  compute_.sums_.add_loss(name, position_index_, micro_batch_index_, value);
}

void ComputeState::LayerContext::keep(std::vector<at::Tensor> choices) {
  if (!recompute) compute_.values(position_index_, micro_batch_index_).kept = std::move(choices);
}

std::vector<at::Tensor> ComputeState::LayerContext::kept() const {
  return recompute ? compute_.values(position_index_, micro_batch_index_).kept : std::vector<at::Tensor>();
}

void ComputeState::LayerContext::defer(std::function<void()> weight_gradient) {
  Values& mine = compute_.values(position_index_, micro_batch_index_);
  if (mine.defers) mine.deferred.push_back(std::move(weight_gradient));
  else weight_gradient();
}

std::function<Context::Sink()> ComputeState::LayerContext::grad_sink(const Param& param) {
  const int index = compute_.index_of(position_index_, param);
  if (!compute_.model_info().params[index].trainable || mode != Mode::train) {
    return [] { return Sink{}; };
  }
  return [this, index] { return sink(index); };
}

// In the first part of a split backward a layer writes to a scratch tensor, which the second part adds.
Context::Sink ComputeState::LayerContext::sink(int param) {
  Values& mine = compute_.values(position_index_, micro_batch_index_);
  if (!mine.defers) return compute_.gradients_.sink(param, position_index_);
  const at::Tensor scratch = compute_.gradients_.scratch(param);
  mine.param_gradients.emplace_back(param, scratch);
  return {scratch, true};
}

}  // namespace zt
