#include "backward_runs.h"

#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace zt {

Work BackwardRuns::backward(int position, int micro_batch) {
  for (const int unit : parts_.layers.info(position).units) parts_.gradients.open(unit);
  const Work work = run(position, micro_batch);
  backward_weights(position, micro_batch);
  return work;
}

Work BackwardRuns::backward_inputs(int position, int micro_batch) {
  Forward& mine = parts_.forwards.at(position, micro_batch);
  mine.defers = true;
  const Work work = run(position, micro_batch);
  mine.inputs.clear();
  mine.outputs.clear();
  mine.roots.clear();
  return work;
}

void BackwardRuns::backward_weights(int position, int micro_batch) {
  for (const int unit : parts_.layers.info(position).units) parts_.gradients.open(unit);
  const Forward mine = std::exchange(parts_.forwards.at(position, micro_batch), Forward());
  for (const auto& weight_gradient : mine.deferred) weight_gradient();
  for (const auto& [param, gradient] : mine.param_gradients) parts_.gradients.add(param, position, gradient);
}

// With what autograd starts, and of what it is to give the gradients.
struct BackwardRuns::Graph {
  torch::autograd::edge_list roots, wanted;  // `wanted`: first inputs, then trained parameters
  torch::autograd::variable_list seeds;
  std::vector<size_t> wanted_inputs;
};

BackwardRuns::Graph BackwardRuns::graph_of(int position, int micro_batch, const Forward& forward) {
  Graph graph;
  for (int i = 0; i < static_cast<int>(forward.outputs.size()); ++i) {
    const at::Tensor gradient = parts_.state.values.take_gradient({position, i}, micro_batch);
    if (!gradient.defined() || !forward.outputs[i].is_valid()) continue;
    graph.roots.push_back(forward.outputs[i]);
    graph.seeds.push_back(gradient);
  }
  for (const Forward::Root& root : forward.roots) {
    if (!root.sum.requires_grad()) continue;
    graph.roots.push_back(torch::autograd::impl::gradient_edge(root.sum));
    graph.seeds.push_back(at::full_like(root.sum, parts_.scale.seed(root.per) * parts_.state.loss_scale));
  }
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    if (!forward.inputs[i].requires_grad()) continue;
    graph.wanted.push_back(torch::autograd::impl::gradient_edge(forward.inputs[i]));
    graph.wanted_inputs.push_back(i);
  }
  for (const int param : parts_.layers.trained_params(position))
    graph.wanted.push_back(torch::autograd::impl::gradient_edge(parts_.state.parameters[param]));
  return graph;
}

Work BackwardRuns::run(int position, int micro_batch) {
  if (parts_.layers.exchange(position)) return exchanges_.backward(position, micro_batch);
  Forward& mine = parts_.forwards.at(position, micro_batch);
  ValueStore& values = parts_.state.values;
  const Graph graph = graph_of(position, micro_batch, mine);
  values.drop(position, micro_batch);
  if (graph.roots.empty() || graph.wanted.empty()) return {};
  const bool keep_graph = false, create_graph = false, accumulate_grad = false;
  const auto grads = torch::autograd::Engine::get_default_engine().execute(graph.roots, graph.seeds, keep_graph, create_graph,
                                                                           accumulate_grad, graph.wanted);
  const std::vector<size_t>& inputs = graph.wanted_inputs;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (grads[k].defined()) values.add_gradient(parts_.layers.info(position).inputs[inputs[k]], micro_batch, grads[k]);
  }
  const std::vector<int>& params = parts_.layers.trained_params(position);
  for (size_t k = 0; k < params.size(); ++k) {
    const at::Tensor& gradient = grads[inputs.size() + k];
    if (gradient.defined()) mine.param_gradients.emplace_back(params[k], gradient);
  }
  return {};
}

}  // namespace zt
