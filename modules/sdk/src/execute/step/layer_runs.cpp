#include "layer_runs.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

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

// Counts the forwards that read each position, once per mode. Outputs that other actions read are dropped by those actions.
void LayerRuns::count_readers(const RankProgram& program) {
  const auto [known, is_new] = readers_.try_emplace(program.mode);
  std::vector<int>& readers = known->second;
  if (!is_new) return;
  const ModelInfo& info = *state_.model;
  readers.assign(info.positions.size(), 0);
  for (size_t p = 0; p < info.positions.size(); ++p) {
    for (const Edge& edge : info.positions[p].inputs) readers[edge.position] += parts_.layers.runs(static_cast<int>(p)) ? 1 : 0;
  }
  for (const Action& action : program.actions) {
    if (role_of(action) == Role::compute) continue;
    for (const Resource& read : resources_of(action, info).reads) {
      if (read.type == resource::value) readers.at(read.index) = -1;
    }
  }
}

void LayerRuns::begin(std::vector<Batch> micro_batches, const RankProgram& program, int64_t first_sample) {
  parts_.batches.begin(std::move(micro_batches), program, first_sample);
  parts_.mode = program.mode;
  parts_.stats.begin();
  parts_.moved.begin(program, parts_);
  parts_.forwards.begin(parts_.layers.count(), program.micro_batches);
  state_.values.begin(*state_.model, program.micro_batches);
  count_readers(program);
  if (program.mode == Mode::train) parts_.gradients.begin_step();
}

void LayerRuns::discard(int micro_batch) {
  for (int position = 0; position < parts_.layers.count(); ++position) {
    parts_.forwards.at(position, micro_batch) = {};
    state_.values.drop(position, micro_batch);
  }
  parts_.moved.discard(micro_batch, state_);
  parts_.stats.discard(micro_batch);
}

std::map<std::string, at::Tensor> LayerRuns::outputs(int micro_batch) const {
  std::map<std::string, at::Tensor> named;
  const int last = parts_.layers.count() - 1;
  int index = 0;
  for (const Output& output : parts_.layers.info(last).outputs) {
    const at::Tensor& value = state_.values.get({last, index++}, micro_batch);
    if (value.defined()) named[output.name] = value;
  }
  return named;
}

std::vector<at::Tensor> LayerRuns::run_layer(int position, const Forward& forward) const {
  const at::Device device = parts_.layers.options().device();
  const DefaultRandomPlace before = default_random_place(device);
  const RunningContext running(*forward.context);
  auto outputs = parts_.layers.layer(position).forward(forward.inputs, *forward.context);
  if (default_random_place(device) != before) {
    misuse(
        "layer '{}' drew from LibTorch's default generator: its numbers would differ in a recompute, on another mesh and after a "
        "resume; draw from Context::rng (in Lua ctx:dropout)",
        parts_.layers.info(position).name);
  }
  return outputs;
}

// Runs the layer, by autograd or as an exchange. Keeps what its backward needs.
MadeOutputs LayerRuns::run(int position, int micro_batch, bool is_recompute, Keep keep) {
  const PositionInfo& info = parts_.layers.info(position);
  const bool is_exchange = parts_.layers.exchange(position) != nullptr, keeps_graph = keep == Keep::graph && !is_exchange;
  Forward& mine = parts_.forwards.at(position, micro_batch);
  LayerContext::begin(parts_, position, micro_batch, is_recompute);
  const at::AutoGradMode grad_mode(keeps_graph);
  const SavedTensorsScope saved(keeps_graph && !is_recompute ? parts_.moved.saved_by(position, micro_batch) : nullptr, info.name);
  MadeOutputs made;
  parts_.batches.with_layer_name(position, micro_batch, [&] {
    try {
      if (is_exchange) made = exchange_forward(parts_, position, micro_batch, keep);
      else made.tensors = run_layer(position, mine);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      throw OutOfMemory(fmt::format("{}{}", inputs_text(mine.inputs), describe(error)));
    }
  });
  const bool drops_all = made.tensors.empty() && parts_.mode != Mode::generate;  // a loss layer may return no values
  if (!drops_all && made.tensors.size() != info.outputs.size())
    misuse("layer '{}' returned {} values, its io() names {}", info.name, made.tensors.size(), info.outputs.size());
  if (keeps_graph) mine.outputs.clear();
  for (at::Tensor& output : made.tensors) {
    output = parts_.layers.outside_parameters(std::move(output));
    const bool has_graph = output.defined() && output.requires_grad();
    if (keeps_graph) mine.outputs.push_back(has_graph ? torch::autograd::impl::gradient_edge(output) : torch::autograd::Edge());
  }
  return made;
}

Work LayerRuns::forward(int position, int micro_batch, Keep keep) {
  take_inputs(position, micro_batch, keep);
  auto [outputs, work] = run(position, micro_batch, false, keep);
  for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
    const bool has_graph = outputs[i].defined() && outputs[i].requires_grad();
    state_.values.put({position, i}, micro_batch, has_graph ? outputs[i].detach() : std::move(outputs[i]));
  }
  if (keep != Keep::graph) parts_.forwards.at(position, micro_batch).inputs.clear();  // the values hold them
  if (keep == Keep::none) release_read_values(position, micro_batch);
  return work;
}

void LayerRuns::take_inputs(int position, int micro_batch, Keep keep) {
  std::vector<at::Tensor>& inputs = parts_.forwards.at(position, micro_batch).inputs;
  inputs.clear();
  for (const Edge& edge : parts_.layers.info(position).inputs) {
    const at::Tensor& source = state_.values.get(edge, micro_batch);
    const PositionInfo& before = parts_.layers.info(edge.position);
    if (!source.defined()) parts_.batches.with_layer_name(position, micro_batch, [&] { refuse_missing(before, edge); });
    const bool wants_grad = keep != Keep::none && before.outputs[edge.output].differentiable && source.is_floating_point();
    inputs.push_back(source.detach().requires_grad_(wants_grad));
  }
}

void LayerRuns::release_read_values(int position, int micro_batch) {
  for (const Edge& edge : parts_.layers.info(position).inputs) {
    Forward& source = parts_.forwards.at(edge.position, micro_batch);
    if (++source.readers_done == readers_.at(parts_.mode)[edge.position]) state_.values.drop(edge.position, micro_batch);
  }
}

Work LayerRuns::recompute(int position, int micro_batch) {
  take_inputs(position, micro_batch, Keep::graph);
  return run(position, micro_batch, true, Keep::graph).work;
}

// The ranks of a group complete a forward together or not at all, so each of them knows whether a recompute or a backward of it
// communicates.
Work LayerRuns::join(const Action& action) {
  const PositionInfo& info = parts_.layers.info(action.target);
  if (!parts_.layers.exchange(action.target)) {
    fault("layer '{}' ({}) communicates within its computation, in which a rank whose step has failed cannot take part",
          info.name, info.kind);
  }
  const Forward& mine = parts_.forwards.at(action.target, action.micro_batch);
  const bool is_own_recompute = action.kind == Kinds::get().recompute && mine.is_exchanged && !mine.is_joined;
  return is_own_recompute ? recompute(action.target, action.micro_batch) : join_exchange(parts_, action);
}

}  // namespace zt
