#include "exchange_runs.h"

#include <ATen/core/grad_mode.h>

#include "layer_context.h"
#include "zt/base/error.h"

namespace zt {

std::vector<at::Tensor> ExchangeLayer::forward(at::TensorList in, Context& context) {
  Started started = start(in, context);
  started.outputs.work.wait();
  return std::move(started.outputs.tensors);
}

MadeOutputs exchange_forward(StepParts& parts, int position, int micro_batch, Keep keep) {
  Forward& mine = parts.forwards.at(position, micro_batch);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : mine.inputs) inputs.push_back(input.detach());
  ExchangeLayer::Started started;
  Work work = parts.stats.timed(position, [&] {
    started = parts.layers.exchange(position)->start(inputs, *mine.context);
    return started.outputs.work;
  });
  mine.is_exchanged = true;
  if (keep == Keep::graph) mine.exchange_backward = std::move(started.backward);
  return {std::move(started.outputs.tensors), std::move(work)};
}

namespace {

Work join_forward(StepParts& parts, const Action& action, Forward& mine) {
  const int position = action.target;
  const PositionInfo& info = parts.layers.info(position);
  if (action.kind == Kinds::get().forward) {
    mine.inputs.clear();
    for (const Edge& edge : info.inputs) {
      const at::Tensor& value = parts.state.values.get(edge, action.micro_batch);
      mine.inputs.push_back(value.defined() ? value.detach() : at::empty({0}, parts.layers.options()));
    }
  }
  Context& context = LayerContext::begin(parts, position, action.micro_batch, action.kind == Kinds::get().recompute);
  auto started = parts.layers.exchange(position)->join(mine.inputs, context);
  if (!started) {
    fault("layer '{}' ({}) exchanges rows without counts, in which a rank whose step has failed cannot take part", info.name,
          info.kind);
  }
  mine.is_exchanged = mine.is_joined = !started->outputs.tensors.empty();
  mine.exchange_backward = std::move(started->backward);
  for (int i = 0; i < static_cast<int>(started->outputs.tensors.size()); ++i)
    parts.state.values.put({position, i}, action.micro_batch, started->outputs.tensors[static_cast<size_t>(i)]);
  return started->outputs.work;
}

}  // namespace

Work join_exchange(StepParts& parts, const Action& action) {
  Forward& mine = parts.forwards.at(action.target, action.micro_batch);
  const at::AutoGradMode no_grad(false);
  if (action.kind == Kinds::get().forward) return join_forward(parts, action, mine);
  if (action.kind == Kinds::get().recompute) return mine.is_joined ? join_forward(parts, action, mine) : Work();
  const auto backward = std::exchange(mine.exchange_backward, nullptr);
  if (!backward) return {};
  const std::vector<at::Tensor> no_gradients(parts.layers.info(action.target).outputs.size());
  return backward(no_gradients).work;
}

Work exchange_backward(StepParts& parts, int position, int micro_batch) {
  const PositionInfo& info = parts.layers.info(position);
  Forward& mine = parts.forwards.at(position, micro_batch);
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < static_cast<int>(info.outputs.size()); ++i)
    gradients.push_back(parts.state.values.take_gradient({position, i}, micro_batch));
  parts.state.values.drop(position, micro_batch);
  const auto backward = std::exchange(mine.exchange_backward, nullptr);
  if (!backward) misuse("the backward of layer '{}' needs its forward first", info.name);
  const at::AutoGradMode no_grad(false);
  std::vector<at::Tensor> results;
  const Work work = parts.stats.timed(position, [&] {
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
  return then(work, [&parts, wanted = std::move(wanted), micro_batch] {
    for (const auto& [edge, gradient] : wanted) parts.state.values.add_gradient(edge, micro_batch, gradient);
  });
}

}  // namespace zt
