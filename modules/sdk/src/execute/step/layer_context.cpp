#include "layer_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

const at::Tensor& LayerRuns::LayerContext::param(const Param& param) {
  return layers_.state_.parameters[layers_.index_of(position_index_, param)];
}

const at::Tensor& LayerRuns::LayerContext::buffer(const std::string& name) {
  const ModelInfo& model = (*layers_.state_.model);
  const PositionInfo& position = model.positions[position_index_];
  for (size_t i = 0; i < model.buffers.size(); ++i) {
    if (model.buffers[i].layer == position.layer && model.buffers[i].local_name == name) return layers_.state_.buffers[i];
  }
  misuse("layer '{}' reads the buffer '{}', which its buffers() does not list: add it there", position.name, name);
}

at::Tensor LayerRuns::LayerContext::batch(const std::string& name) {
  if (const auto found = fields().find(name); found != fields().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, unused] : fields()) names.push_back(known);
  misuse("layer '{}' needs the batch field '{}', which the batch does not have{}", layers_.position_info(position_index_).name,
         name, suggest(name, names));
}

int64_t LayerRuns::LayerContext::first_sample() const {
  return layers_.parts_.batches.first_sample(micro_batch_index_);
}

Philox LayerRuns::LayerContext::rng(Purpose purpose) const {
  const auto place = static_cast<uint64_t>(position_index_);
  return Philox::keyed(layers_.model_->seed(), purpose, place, static_cast<uint64_t>(step));
}

void LayerRuns::LayerContext::loss(const std::string& name, at::Tensor sum, Per per) {
  if (sum.dim() != 0) misuse("the loss '{}' must be a scalar (a sum over tokens or samples), got {}", name, describe(sum));
  const LossInfo term{name, per};
  layers_.parts_.stats.check_loss(position_index_, term);
  if (sum.requires_grad()) mine().roots.push_back({sum, per});
  if (recompute) return;
  const at::Tensor value = sum.detach().to(at::kDouble);
  const double factor = mode == Mode::train ? layers_.parts_.scale.loss_factor(per) : 1;
  layers_.parts_.stats.add_loss(position_index_, micro_batch_index_, term, factor == 1 ? value : value * factor);
}

void LayerRuns::LayerContext::stat(const std::string& name, const at::Tensor& values) {
  if (recompute || mode == Mode::generate || values.is_meta()) return;
  layers_.parts_.stats.add(position_index_, micro_batch_index_, name, values);
}

void LayerRuns::LayerContext::sent(const std::string& axis, int64_t bytes, Pattern pattern) {
  layers_.parts_.stats.add_sent(position_index_, micro_batch_index_, axis, bytes, pattern, mode != Mode::generate);
}

void LayerRuns::LayerContext::watch(const std::string& name, const at::Tensor& values) {
  layers_.parts_.search.look_at(name, layers_.position_info(position_index_).name, values);
}

void LayerRuns::LayerContext::keep(std::vector<at::Tensor> choices) {
  if (!recompute) mine().kept = std::move(choices);
}

std::vector<at::Tensor> LayerRuns::LayerContext::kept() const {
  return recompute ? mine().kept : std::vector<at::Tensor>();
}

void LayerRuns::LayerContext::defer(std::function<void()> weight_gradient) {
  Forward& forward = mine();
  if (forward.defers) forward.deferred.push_back(std::move(weight_gradient));
  else weight_gradient();
}

std::function<Context::Sink()> LayerRuns::LayerContext::grad_sink(const Param& param) {
  const int index = layers_.index_of(position_index_, param);
  if (!(*layers_.state_.model).params[index].trainable || mode != Mode::train) {
    return [] { return Sink{}; };
  }
  return [this, index] { return sink(index); };
}

// In the first part of a split backward a layer writes to a scratch tensor, which the second part adds.
Context::Sink LayerRuns::LayerContext::sink(int param) {
  Forward& forward = mine();
  if (!forward.defers) return layers_.parts_.gradients.sink(param, position_index_);
  const at::Tensor scratch = layers_.parts_.gradients.scratch(param);
  forward.param_gradients.emplace_back(param, scratch);
  return {scratch, true};
}

}  // namespace zt
