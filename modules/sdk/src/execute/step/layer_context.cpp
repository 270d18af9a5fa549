#include "layer_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

Context& LayerContext::begin(StepParts& parts, int position, int micro_batch, bool is_recompute) {
  Forward& forward = parts.forwards.at(position, micro_batch);
  forward.context = std::make_shared<LayerContext>(parts, position, micro_batch, is_recompute);
  forward.roots.clear();
  forward.fields.clear();
  if (!is_recompute) forward.kept.clear();
  return *forward.context;
}

LayerContext::LayerContext(StepParts& parts, int position, int micro_batch, bool is_recompute) : parts_(parts) {
  mode = parts.mode;
  recompute = is_recompute;
  adapters = parts.state.adapters;
  step = parts.state.step;
  this->position = position;
  this->micro_batch = micro_batch;
}

const at::Tensor& LayerContext::param(const Param& param) {
  return parts_.state.parameters[parts_.layers.index_of(position, param)];
}

const at::Tensor& LayerContext::buffer(const std::string& name) {
  const ModelInfo& model = *parts_.state.model;
  const PositionInfo& layer = parts_.layers.info(position);
  for (size_t i = 0; i < model.buffers.size(); ++i) {
    if (model.buffers[i].layer == layer.layer && model.buffers[i].local_name == name) return parts_.state.buffers[i];
  }
  misuse("layer '{}' reads the buffer '{}', which its buffers() does not list: add it there", layer.name, name);
}

at::Tensor LayerContext::batch(const std::string& name) {
  if (const auto found = fields().find(name); found != fields().end())
    return parts_.input_gradients.wants(name) && at::GradMode::is_enabled() ? leaf(name, found->second) : found->second;
  std::vector<std::string> names;
  for (const auto& [known, unused] : fields()) names.push_back(known);
  misuse("layer '{}' needs the batch field '{}', which the batch does not have{}", parts_.layers.info(position).name, name,
         suggest(name, names));
}

// Returns the field as a leaf, of which the backward gives the gradient.
const at::Tensor& LayerContext::leaf(const std::string& name, const at::Tensor& field) {
  if (!field.is_floating_point())
    misuse("the gradient of the batch field '{}' is wanted, which is {}: only floating-point fields have one", name,
           describe(field));
  at::Tensor& leaf = mine().fields[name];
  if (!leaf.defined()) leaf = field.detach().requires_grad_(true);
  return leaf;
}

const TokenPlaces& LayerContext::tokens() {
  return parts_.batches.tokens(micro_batch);
}

bool LayerContext::is_whole_along(const std::string& axis) const {
  const auto& cut = parts_.state.model->tokens;
  return cut && cut->axis == axis && mode == Mode::generate;
}

Philox LayerContext::rng(Purpose purpose) const {
  return Philox::keyed(parts_.layers.model().seed(), purpose, static_cast<uint64_t>(position), static_cast<uint64_t>(step));
}

void LayerContext::loss(const std::string& name, at::Tensor sum, Per per) {
  if (sum.dim() != 0) misuse("the loss '{}' must be a scalar (a sum over tokens or samples), got {}", name, describe(sum));
  parts_.stats.check_loss(position, name, per);
  if (sum.requires_grad()) mine().roots.push_back({sum, per});
  if (recompute) return;
  const at::Tensor value = sum.detach().to(at::kDouble);
  const double factor = mode == Mode::train ? parts_.scale.loss_factor(per) : 1;
  parts_.stats.add_loss(position, micro_batch, name, factor == 1 ? value : value * factor);
}

void LayerContext::stat(const std::string& name, const at::Tensor& values) {
  if (recompute || mode == Mode::generate || values.is_meta()) return;
  parts_.stats.add_named_stat(position, micro_batch, name, values);
}

void LayerContext::sent(const std::string& axis, int64_t bytes, Pattern pattern) {
  parts_.stats.add_sent(position, micro_batch, axis, bytes, pattern, mode != Mode::generate);
}

void LayerContext::watch(const std::string& name, const at::Tensor& values) {
  parts_.search.look_at(name, parts_.layers.info(position).name, values);
}

void LayerContext::keep(std::vector<at::Tensor> choices) {
  if (!recompute) mine().kept = std::move(choices);
}

std::vector<at::Tensor> LayerContext::kept() const {
  return recompute ? mine().kept : std::vector<at::Tensor>();
}

void LayerContext::defer(std::function<void()> weight_gradient) {
  Forward& forward = mine();
  if (forward.defers) forward.deferred.push_back(std::move(weight_gradient));
  else weight_gradient();
}

std::function<Context::Sink()> LayerContext::grad_sink(const Param& param) {
  const int index = parts_.layers.index_of(position, param);
  if (!(*parts_.state.model).params[index].trainable || mode != Mode::train) {
    return [] { return Sink{}; };
  }
  return [this, index] { return sink(index); };
}

// In the first part of a split backward a layer writes to a scratch tensor, which the second part adds.
Context::Sink LayerContext::sink(int param) {
  Forward& forward = mine();
  if (!forward.defers) return parts_.gradients.sink(param, position);
  const at::Tensor scratch = parts_.gradients.scratch(param);
  forward.param_gradients.emplace_back(param, scratch);
  return {scratch, true};
}

}  // namespace zt
