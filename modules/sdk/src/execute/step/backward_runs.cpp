// The backwards of layers, whole or in two parts.
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "exchange_runs.h"
#include "layer_runs.h"

namespace zt {

namespace {

// With what autograd starts, and of what it is to give the gradients.
struct BackwardGraph {
  torch::autograd::edge_list roots, wanted;  // `wanted`: first inputs, then trained parameters, then fields of the batch
  torch::autograd::variable_list seeds;
  std::vector<size_t> wanted_inputs;
};

BackwardGraph graph_of(const StepParts& parts, int position, int micro_batch, const Forward& forward) {
  BackwardGraph graph;
  for (int i = 0; i < static_cast<int>(forward.outputs.size()); ++i) {
    const at::Tensor gradient = parts.state.values.take_gradient({position, i}, micro_batch);
    if (!gradient.defined() || !forward.outputs[i].is_valid()) continue;
    graph.roots.push_back(forward.outputs[i]);
    graph.seeds.push_back(gradient);
  }
  for (const Forward::Root& root : forward.roots) {
    if (!root.sum.requires_grad()) continue;
    graph.roots.push_back(torch::autograd::impl::gradient_edge(root.sum));
    graph.seeds.push_back(at::full_like(root.sum, parts.scale.seed(root.per) * parts.state.loss_scale));
  }
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    if (!forward.inputs[i].requires_grad()) continue;
    graph.wanted.push_back(torch::autograd::impl::gradient_edge(forward.inputs[i]));
    graph.wanted_inputs.push_back(i);
  }
  for (const int param : parts.layers.trained_params(position))
    graph.wanted.push_back(torch::autograd::impl::gradient_edge(parts.state.parameters[param]));
  for (const auto& [name, leaf] : forward.fields) graph.wanted.push_back(torch::autograd::impl::gradient_edge(leaf));
  return graph;
}

Work run_graph(StepParts& parts, int position, int micro_batch) {
  if (parts.layers.exchange(position)) return exchange_backward(parts, position, micro_batch);
  Forward& mine = parts.forwards.at(position, micro_batch);
  ValueStore& values = parts.state.values;
  const BackwardGraph graph = graph_of(parts, position, micro_batch, mine);
  values.drop(position, micro_batch);
  if (graph.roots.empty() || graph.wanted.empty()) return {};
  const bool keep_graph = false, create_graph = false, accumulate_grad = false;
  const auto grads = torch::autograd::Engine::get_default_engine().execute(graph.roots, graph.seeds, keep_graph, create_graph,
                                                                           accumulate_grad, graph.wanted);
  const std::vector<size_t>& inputs = graph.wanted_inputs;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (grads[k].defined()) values.add_gradient(parts.layers.info(position).inputs[inputs[k]], micro_batch, grads[k]);
  }
  const std::vector<int>& params = parts.layers.trained_params(position);
  for (size_t k = 0; k < params.size(); ++k) {
    const at::Tensor& gradient = grads[inputs.size() + k];
    if (gradient.defined()) mine.param_gradients.emplace_back(params[k], gradient);
  }
  size_t place = inputs.size() + params.size();
  for (const auto& [name, leaf] : mine.fields) {
    if (const at::Tensor& gradient = grads[place++]; gradient.defined()) parts.input_gradients.add(name, micro_batch, gradient);
  }
  return {};
}

}  // namespace

Work backward(StepParts& parts, int position, int micro_batch) {
  for (const int unit : parts.layers.info(position).units) parts.gradients.open(unit);
  const Work work = run_graph(parts, position, micro_batch);
  backward_weights(parts, position, micro_batch);
  return work;
}

Work backward_inputs(StepParts& parts, int position, int micro_batch) {
  Forward& mine = parts.forwards.at(position, micro_batch);
  mine.defers = true;
  const Work work = run_graph(parts, position, micro_batch);
  mine.inputs.clear();
  mine.outputs.clear();
  mine.roots.clear();
  mine.fields.clear();
  return work;
}

Work backward_weights(StepParts& parts, int position, int micro_batch) {
  for (const int unit : parts.layers.info(position).units) parts.gradients.open(unit);
  const Forward mine = std::exchange(parts.forwards.at(position, micro_batch), Forward());
  for (const auto& weight_gradient : mine.deferred) weight_gradient();
  for (const auto& [param, gradient] : mine.param_gradients) parts.gradients.add(param, position, gradient);
  return {};
}

}  // namespace zt
