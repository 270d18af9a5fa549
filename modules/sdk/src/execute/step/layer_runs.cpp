#include "layer_runs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>

#include "layer_context.h"
#include "random/random_watch.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

// Throws Misuse: the layer before has returned no tensor for an output that the layer reads.
[[noreturn]] void refuse_missing(const PositionInfo& before, const Edge& edge) {
  misuse(
      "it reads the output '{}' of layer '{}', which returned none: a layer with a loss of its own, such as nn.lm_loss, outputs "
      "nothing in training. Leave that loss out (nn.gpt{{loss = false}}), or let the layer stand before it",
      before.outputs[edge.output].name, before.name);
}

// "with the inputs float32 [8, 128, 512]: ", or nothing for a layer without inputs.
std::string inputs_text(const std::vector<at::Tensor>& inputs) {
  std::vector<std::string> texts;
  for (const at::Tensor& input : inputs) texts.push_back(describe(input));
  return texts.empty() ? "" : fmt::format("with the inputs {}: ", fmt::join(texts, ", "));
}

}  // namespace

LayerRuns::LayerRuns(std::shared_ptr<const Model> model, StepState& state, std::vector<bool> runs)
    : model_(std::move(model)), state_(state), runs_(std::move(runs)), parts_(model_, state, runs_) {
  const ModelInfo& info = *state_.model;
  if (state_.links) device_ = state_.links->device();
  for (const Unit& unit : state_.units) {
    if (!unit.plan.held) continue;
    device_ = unit.full.device();
    param_type_ = unit.full.scalar_type();
    if (unit.owns_shard()) shared_storages_.insert(unit.full.storage().unsafeGetStorageImpl());
  }
  std::unordered_map<const Param*, int> indices;
  for (size_t i = 0; i < model_->params().size(); ++i) indices[model_->params()[i].get()] = static_cast<int>(i);
  for (int p = 0; p < static_cast<int>(info.positions.size()); ++p) {
    exchanges_.push_back(dynamic_cast<ExchangeLayer*>(model_->positions()[p].layer.get()));
    auto& params = layer_params_.emplace_back();
    auto& trained = trained_params_.emplace_back();
    for (const auto& param : model_->positions()[p].layer->params()) {
      const int index = indices.at(param.get());
      params.push_back({param.get(), index});
      if (info.params[index].trainable) trained.push_back(index);
    }
  }
}

// Returns the index of a parameter that the layer at `position` lists.
int LayerRuns::index_of(int position, const Param& param) const {
  const std::vector<LayerParam>& known = layer_params_[position];
  const auto found = std::ranges::find(known, &param, &LayerParam::param);
  if (found != known.end()) return found->index;
  misuse("layer '{}' uses the parameter '{}', which its params() does not list: add it there", position_info(position).name,
         param.name);
}

// Counts the forwards that read each position, once per mode. Outputs that other actions read are dropped by those actions.
void LayerRuns::count_readers(const Program& program) {
  const auto [known, is_new] = readers_.try_emplace(program.mode);
  std::vector<int>& readers = known->second;
  if (!is_new) return;
  const ModelInfo& info = *state_.model;
  readers.assign(info.positions.size(), 0);
  for (size_t p = 0; p < info.positions.size(); ++p) {
    for (const Edge& edge : info.positions[p].inputs) readers[edge.position] += runs_[p] ? 1 : 0;
  }
  for (const Action& action : program.actions) {
    if (role_of(action) == Role::compute) continue;
    for (const Resource& read : resources_of(action, info).reads) {
      if (read.type == resource::value) readers.at(read.index) = -1;
    }
  }
}

void LayerRuns::begin(std::vector<Batch> micro_batches, const Program& program, int64_t first_sample) {
  parts_.mode = program.mode;
  parts_.batches.begin(std::move(micro_batches), program.micro_batches, first_sample);
  parts_.stats.begin();
  forwards_.clear();
  forwards_.resize(model_->positions().size() * program.micro_batches);
  state_.values.begin(*state_.model, program.micro_batches);
  count_readers(program);
  if (program.mode == Mode::train) parts_.gradients.begin_step();
}

void LayerRuns::discard(int micro_batch) {
  for (int position = 0; position < static_cast<int>(model_->positions().size()); ++position) {
    forward_of(position, micro_batch) = {};
    state_.values.drop(position, micro_batch);
  }
  parts_.stats.discard(micro_batch);
}

std::map<std::string, at::Tensor> LayerRuns::outputs(int micro_batch) const {
  std::map<std::string, at::Tensor> named;
  const int last = static_cast<int>(model_->positions().size()) - 1;
  int index = 0;
  for (const Output& output : position_info(last).outputs) {
    const at::Tensor& value = state_.values.get({last, index++}, micro_batch);
    if (value.defined()) named[output.name] = value;
  }
  return named;
}

void LayerRuns::begin_layer(int position, int micro_batch, bool is_recompute, Forward& forward) {
  forward.context = std::make_shared<LayerContext>(*this, position, micro_batch);
  forward.context->mode = parts_.mode;
  forward.context->recompute = is_recompute;
  forward.context->step = state_.step;
  forward.context->position = position;
  forward.context->micro_batch = micro_batch;
  forward.roots.clear();
  if (!is_recompute) forward.kept.clear();
}

std::vector<at::Tensor> LayerRuns::run_layer(int position, Forward& forward) {
  const PositionInfo& info = position_info(position);
  const DefaultRandomPlace before = default_random_place(device_);
  const RunningContext running(*forward.context);
  auto outputs = model_->positions()[position].layer->forward(forward.inputs, *forward.context);
  if (default_random_place(device_) != before) {
    misuse(
        "layer '{}' drew from LibTorch's default generator: its numbers would differ in a recompute, on another mesh and after a "
        "resume; draw from Context::rng (in Lua ctx:dropout)",
        info.name);
  }
  return outputs;
}

// Runs the layer, by autograd or as an exchange. Keeps what its backward needs.
LayerRuns::Made LayerRuns::run(int position, int micro_batch, bool is_recompute, Keep keep) {
  const PositionInfo& info = position_info(position);
  Forward& mine = forward_of(position, micro_batch);
  begin_layer(position, micro_batch, is_recompute, mine);
  const at::AutoGradMode grad_mode(keep == Keep::graph && !exchanges_[position]);
  Made made;
  with_name(position, micro_batch, [&] {
    try {
      if (exchanges_[position]) made = start_exchange(position, keep, mine);
      else made.outputs = run_layer(position, mine);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      throw OutOfMemory(fmt::format("{}{}", inputs_text(mine.inputs), describe(error)));
    }
  });
  const bool drops_all = made.outputs.empty() && parts_.mode != Mode::generate;  // a loss layer may return no values
  if (!drops_all && made.outputs.size() != info.outputs.size())
    misuse("layer '{}' returned {} values, its io() names {}", info.name, made.outputs.size(), info.outputs.size());
  // A value may outlive the residency of its layer's parameters. In a buffer that units share it would be overwritten then.
  for (at::Tensor& output : made.outputs) {
    if (output.defined() && output.has_storage() && shared_storages_.contains(output.storage().unsafeGetStorageImpl()))
      output = output.clone();
  }
  if (keep == Keep::graph && !exchanges_[position]) keep_graph(made.outputs, mine);
  return made;
}

Work LayerRuns::forward(int position, int micro_batch, Keep keep) {
  const PositionInfo& info = position_info(position);
  Forward& mine = forward_of(position, micro_batch);
  mine.inputs.clear();
  for (const Edge& edge : info.inputs) {
    const at::Tensor& source = state_.values.get(edge, micro_batch);
    const PositionInfo& before = position_info(edge.position);
    const bool is_differentiable = before.outputs[edge.output].differentiable;
    if (!source.defined()) with_name(position, micro_batch, [&] { refuse_missing(before, edge); });
    const bool wants_grad = keep != Keep::none && is_differentiable && source.is_floating_point();
    mine.inputs.push_back(source.detach().requires_grad_(wants_grad));
  }
  auto [outputs, work] = run(position, micro_batch, false, keep);
  for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
    const bool has_graph = outputs[i].defined() && outputs[i].requires_grad();
    state_.values.put({position, i}, micro_batch, has_graph ? outputs[i].detach() : std::move(outputs[i]));
  }
  if (keep == Keep::none) {
    mine.inputs.clear();
    release_read_values(position, micro_batch);
  }
  return work;
}

void LayerRuns::keep_graph(const std::vector<at::Tensor>& outputs, Forward& forward) {
  forward.outputs.clear();
  for (const at::Tensor& output : outputs) {
    const bool has_graph = output.defined() && output.requires_grad();
    forward.outputs.push_back(has_graph ? torch::autograd::impl::gradient_edge(output) : torch::autograd::Edge());
  }
}

void LayerRuns::release_read_values(int position, int micro_batch) {
  for (const Edge& edge : position_info(position).inputs) {
    Forward& source = forward_of(edge.position, micro_batch);
    if (++source.readers_done == readers_.at(parts_.mode)[edge.position]) state_.values.drop(edge.position, micro_batch);
  }
}

Work LayerRuns::recompute(int position, int micro_batch) {
  return run(position, micro_batch, true, Keep::graph).work;
}

Work LayerRuns::backward(int position, int micro_batch) {
  Forward& mine = forward_of(position, micro_batch);
  for (const int unit : position_info(position).units) parts_.gradients.open(unit);
  const Work work = backward_layer(position, micro_batch, mine);
  backward_weights(position, micro_batch);
  return work;
}

Work LayerRuns::backward_inputs(int position, int micro_batch) {
  Forward& mine = forward_of(position, micro_batch);
  mine.defers = true;
  const Work work = backward_layer(position, micro_batch, mine);
  mine.inputs.clear();
  mine.outputs.clear();
  mine.roots.clear();
  return work;
}

void LayerRuns::backward_weights(int position, int micro_batch) {
  for (const int unit : position_info(position).units) parts_.gradients.open(unit);
  const Forward mine = std::exchange(forward_of(position, micro_batch), Forward());
  for (const auto& weight_gradient : mine.deferred) weight_gradient();
  for (const auto& [param, gradient] : mine.param_gradients) parts_.gradients.add(param, position, gradient);
}

Work LayerRuns::backward_layer(int position, int micro_batch, Forward& mine) {
  if (exchanges_[position]) return backward_exchange(position, micro_batch, mine);
  const PositionInfo& info = position_info(position);
  torch::autograd::edge_list roots, wanted;
  torch::autograd::variable_list seeds;
  for (int i = 0; i < static_cast<int>(mine.outputs.size()); ++i) {
    const at::Tensor gradient = state_.values.take_gradient({position, i}, micro_batch);
    if (!gradient.defined() || !mine.outputs[i].is_valid()) continue;
    roots.push_back(mine.outputs[i]);
    seeds.push_back(gradient);
  }
  for (const Root& root : mine.roots) {
    if (!root.sum.requires_grad()) continue;
    roots.push_back(torch::autograd::impl::gradient_edge(root.sum));
    seeds.push_back(at::full_like(root.sum, parts_.scale.seed(root.per) * state_.loss_scale));
  }
  std::vector<size_t> wanted_inputs;
  for (size_t i = 0; i < mine.inputs.size(); ++i) {
    if (!mine.inputs[i].requires_grad()) continue;
    wanted.push_back(torch::autograd::impl::gradient_edge(mine.inputs[i]));
    wanted_inputs.push_back(i);
  }
  const std::vector<int>& params = trained_params_[position];
  for (const int param : params) wanted.push_back(torch::autograd::impl::gradient_edge(state_.parameters[param]));
  state_.values.drop(position, micro_batch);
  if (roots.empty() || wanted.empty()) return {};
  const bool keep_graph = false, create_graph = false, accumulate_grad = false;
  const auto grads =
      torch::autograd::Engine::get_default_engine().execute(roots, seeds, keep_graph, create_graph, accumulate_grad, wanted);
  for (size_t k = 0; k < wanted_inputs.size(); ++k) {
    if (grads[k].defined()) state_.values.add_gradient(info.inputs[wanted_inputs[k]], micro_batch, grads[k]);
  }
  for (size_t k = 0; k < params.size(); ++k) {
    const at::Tensor& gradient = grads[wanted_inputs.size() + k];
    if (gradient.defined()) mine.param_gradients.emplace_back(params[k], gradient);
  }
  return {};
}

}  // namespace zt
