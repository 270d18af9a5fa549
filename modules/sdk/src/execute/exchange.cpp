// Exchange layers in a step, and the updates of layers' buffers.
#include <ATen/core/grad_mode.h>

#include "compute.h"
#include "zt/base/error.h"

namespace zt {

std::vector<at::Tensor> ExchangeLayer::forward(at::TensorList in, Context& context) {
  Started started = start(in, context);
  started.outputs.work.wait();
  return std::move(started.outputs.tensors);
}

ComputeState::Run ComputeState::start_exchange(int position, Keep keep, Values& values) const {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : values.inputs) inputs.push_back(input.detach());
  ExchangeLayer::Started started = exchanges_[position]->start(inputs, *values.context);
  if (keep == Keep::graph) values.exchange_backward = std::move(started.backward);
  return {std::move(started.outputs.tensors), std::move(started.outputs.work)};
}

Work ComputeState::backward_exchange(int position, int micro_batch, Values& mine) {
  const PositionInfo& info = model_->info().positions[position];
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < static_cast<int>(info.outputs.size()); ++i)
    gradients.push_back(state_.values.take_gradient({position, i}, micro_batch));
  state_.values.drop(position, micro_batch);
  const auto backward = std::exchange(mine.exchange_backward, nullptr);
  if (!backward) misuse("the backward of layer '{}' needs its forward first", info.name);
  const at::AutoGradMode no_grad(false);
  auto [results, work] = backward(gradients);
  if (results.size() != info.inputs.size())
    misuse("the backward of layer '{}' returned {} gradients for {} inputs", info.name, results.size(), info.inputs.size());
  std::vector<std::pair<Edge, at::Tensor>> wanted;
  for (size_t i = 0; i < results.size(); ++i) {
    if (mine.inputs[i].requires_grad()) wanted.emplace_back(info.inputs[i], results[i]);
  }
  // Without a gradient, no later action waits for the work.
  if (wanted.empty()) work.wait();
  return then(std::move(work), [this, wanted = std::move(wanted), micro_batch] {
    for (const auto& [edge, gradient] : wanted) state_.values.add_gradient(edge, micro_batch, gradient);
  });
}

void ComputeState::update_layer(int position, const Stats& stats) {
  const ModelInfo& info = model_->info();
  const int layer = info.positions[position].layer;
  if (!updated_layers_.insert(layer).second) return;
  const std::string prefix = info.positions[position].name + ".";
  Stats own;
  for (const ModelStat& stat : info.stats) {
    if (stat.layer == layer) own.emplace(stat.name.substr(prefix.size()), stats.at(stat.name));
  }
  model_->positions()[position].layer->update(own);
}

}  // namespace zt
