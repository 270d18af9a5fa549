// Exchange layers in a step.
#include <ATen/core/grad_mode.h>

#include "layer_runs.h"
#include "zt/base/error.h"

namespace zt {

std::vector<at::Tensor> ExchangeLayer::forward(at::TensorList in, Context& context) {
  Started started = start(in, context);
  started.outputs.work.wait();
  return std::move(started.outputs.tensors);
}

LayerRuns::Made LayerRuns::start_exchange(int position, Keep keep, Forward& forward) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : forward.inputs) inputs.push_back(input.detach());
  ExchangeLayer::Started started;
  Work work = parts_.stats.timed(position, [&] {
    started = exchanges_[position]->start(inputs, *forward.context);
    return started.outputs.work;
  });
  forward.is_exchanged = true;
  if (keep == Keep::graph) forward.exchange_backward = std::move(started.backward);
  return {std::move(started.outputs.tensors), std::move(work)};
}

// The ranks of a group complete a forward together or not at all, so each of them knows whether a recompute or a backward of it
// communicates.
Work LayerRuns::join(const Action& action) {
  const Kinds& kinds = Kinds::get();
  Forward& mine = forward_of(action.target, action.micro_batch);
  const PositionInfo& info = position_info(action.target);
  if (!exchanges_[action.target]) {
    fault("layer '{}' ({}) communicates within its computation, in which a rank whose step has failed cannot take part",
          info.name, info.kind);
  }
  const at::AutoGradMode no_grad(false);
  if (action.kind == kinds.recompute && mine.is_exchanged && !mine.is_joined)
    return run(action.target, action.micro_batch, true, Keep::graph).work;
  if (action.kind == kinds.forward || (action.kind == kinds.recompute && mine.is_joined)) return join_forward(action, mine);
  const auto backward = std::exchange(mine.exchange_backward, nullptr);
  if (!backward) return {};
  const std::vector<at::Tensor> no_gradients(info.outputs.size());
  return backward(no_gradients).work;
}

Work LayerRuns::join_forward(const Action& action, Forward& mine) {
  const int position = action.target;
  const PositionInfo& info = position_info(position);
  if (action.kind == Kinds::get().forward) {
    mine.inputs.clear();
    for (const Edge& edge : info.inputs) {
      const at::Tensor& value = state_.values.get(edge, action.micro_batch);
      const auto options = at::TensorOptions().dtype(param_type_).device(device_);
      mine.inputs.push_back(value.defined() ? value.detach() : at::empty({0}, options));
    }
  }
  begin_layer(position, action.micro_batch, action.kind == Kinds::get().recompute, mine);
  auto started = exchanges_[position]->join(mine.inputs, *mine.context);
  if (!started) {
    fault("layer '{}' ({}) exchanges rows without counts, in which a rank whose step has failed cannot take part", info.name,
          info.kind);
  }
  mine.is_exchanged = mine.is_joined = !started->outputs.tensors.empty();
  mine.exchange_backward = std::move(started->backward);
  for (int i = 0; i < static_cast<int>(started->outputs.tensors.size()); ++i)
    state_.values.put({position, i}, action.micro_batch, started->outputs.tensors[static_cast<size_t>(i)]);
  return started->outputs.work;
}

Work LayerRuns::backward_exchange(int position, int micro_batch, Forward& mine) {
  const PositionInfo& info = position_info(position);
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < static_cast<int>(info.outputs.size()); ++i)
    gradients.push_back(state_.values.take_gradient({position, i}, micro_batch));
  state_.values.drop(position, micro_batch);
  const auto backward = std::exchange(mine.exchange_backward, nullptr);
  if (!backward) misuse("the backward of layer '{}' needs its forward first", info.name);
  const at::AutoGradMode no_grad(false);
  std::vector<at::Tensor> results;
  const Work work = parts_.stats.timed(position, [&] {
    ExchangeLayer::Exchanged gone = backward(gradients);
    results = std::move(gone.tensors);
    return gone.work;
  });
  if (results.size() != info.inputs.size())
    misuse("the backward of layer '{}' returned {} gradients for {} inputs", info.name, results.size(), info.inputs.size());
  std::vector<std::pair<Edge, at::Tensor>> wanted;
  for (size_t i = 0; i < results.size(); ++i) {
    if (mine.inputs[i].requires_grad()) wanted.emplace_back(info.inputs[i], results[i]);
  }
  // Without a gradient, no later action waits for the work.
  if (wanted.empty()) work.wait();
  return then(work, [this, wanted = std::move(wanted), micro_batch] {
    for (const auto& [edge, gradient] : wanted) state_.values.add_gradient(edge, micro_batch, gradient);
  });
}

}  // namespace zt
