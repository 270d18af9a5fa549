#include "rehearsal.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "execute/step/layer_runs.h"
#include "execute/step_handlers.h"
#include "model/build/unit_build.h"
#include "plan/rehearsal/meta_watch.h"
#include "plan/rehearsal/micro_batches_alike.h"
#include "zt/base/error.h"
#include "zt/gemm/flop_watch.h"

namespace zt {

namespace {

// Stands for the actions that move values between ranks, by what they declare to read, to write and to free.
class Moved : public ActionHandler {
 public:
  Moved(const ModelInfo& model, const ValueShapes& shapes) : model_(model), shapes_(shapes) {}

  Work start(const Action& action, StepState& state) override {
    const Resources declared = resources_of(action, model_);
    const auto message = message_of(action);
    if (message && message->is_send) {
      for (const Resource& sent : declared.reads) send(sent, state);
    }
    for (const Resource& written : declared.writes) receive(written, state);
    for (const Resource& freed : declared.frees) {
      if (freed.type == resource::value) state.values.drop_values(freed.index, freed.micro_batch);
      if (freed.type == resource::value_grad) state.values.drop_gradients(freed.index, freed.micro_batch);
    }
    return {};
  }
  // Returns the bytes sent since the last call.
  int64_t take_sent_bytes() { return std::exchange(sent_, 0); }

 private:
  bool is_read(const Edge& edge) const {
    const auto reads = [&](const PositionInfo& position) { return std::ranges::count(position.inputs, edge) > 0; };
    return std::ranges::any_of(model_.positions, reads);
  }

  // Counts the tensors that are there. They stay, until the action frees them.
  void send(const Resource& sent, StepState& state) {
    if (sent.type != resource::value && sent.type != resource::value_grad) return;
    for (int output = 0; output < static_cast<int>(model_.positions[sent.index].outputs.size()); ++output) {
      const Edge edge{sent.index, output};
      const bool is_value = sent.type == resource::value;
      const at::Tensor tensor =
          is_value ? state.values.get(edge, sent.micro_batch) : state.values.take_gradient(edge, sent.micro_batch);
      if (tensor.defined()) sent_ += static_cast<int64_t>(tensor.nbytes());
      if (!is_value) state.values.add_gradient(edge, sent.micro_batch, tensor);
    }
  }

  // A gradient comes back for the outputs that some position reads as numbers.
  void receive(const Resource& written, StepState& state) const {
    if (written.type != resource::value && written.type != resource::value_grad) return;
    const auto& outputs = shapes_.of(written.index, written.micro_batch);
    for (int output = 0; output < static_cast<int>(outputs.size()); ++output) {
      if (!outputs[output].defined()) continue;
      const Edge edge{written.index, output};
      if (written.type == resource::value) state.values.put(edge, written.micro_batch, at::empty_like(outputs[output]));
      else if (model_.positions[written.index].outputs[output].differentiable && outputs[output].is_floating_point() &&
               is_read(edge))
        state.values.add_gradient(edge, written.micro_batch, at::empty_like(outputs[output]));
    }
  }

  const ModelInfo& model_;
  const ValueShapes& shapes_;
  int64_t sent_ = 0;
};

// Returns why an operator cannot run on tensors without memory: LibTorch's text without its advice, and ours.
std::string why_not(std::string text) {
  text = text.substr(0, text.find(" You may have run into this message"));
  if (text.find("_local_scalar_dense") != std::string::npos)
    text +=
        " A plan has no values, so nothing may follow from them, as from x:item() and x:tolist(): compute with tensors, or write "
        "zt.world.dry and ... or ...";
  else if (text.find("at least two devices") != std::string::npos)
    text +=
        ". A tensor that the layer makes or finds outside of it needs the device of its inputs: zt.arange(n, {device = h:device()}), "
        "constant:to(h:device())";
  return text;
}

at::Tensor meta_buffer(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

std::vector<Unit> units_on_meta(const ModelInfo& model, const RankProgram& program, const RankUnits& held) {
  std::vector<Unit> units;
  for (const Unit& real : held.units) {
    Unit& unit = units.emplace_back(real);
    const auto shared = [&](const Slots& slots, at::ScalarType dtype) {
      return slots.of_unit[unit.index] < 0 ? at::Tensor() : meta_buffer(unit.layout.padded(), dtype);
    };
    if (unit.is_node_shared()) unit.plan.params = Residence::whole;
    allocate_unit(unit, model.units[unit.index], program.precision, {},
                  [](const auto&, int64_t numel, at::ScalarType dtype) { return meta_buffer(numel, dtype); },
                  {shared(held.slots.of(resource::param), model.units[unit.index].element_type(program.precision.params)),
                   shared(held.slots.of(resource::grad), program.precision.grads)});
  }
  return units;
}

bool moves_values(const Action& action) {
  return action.kind == Kinds::get().fetch_value || action.kind == Kinds::get().evict_value;
}

// Runs the layers' actions and those that move data of the step, moves values between ranks by `moved`, and does nothing else.
Executor::Handlers rehearsed_handlers(const RankProgram& program, const std::shared_ptr<LayerRuns>& layers,
                                      const std::shared_ptr<Moved>& moved) {
  Executor::Handlers handlers = step_handlers(layers, nullptr);
  const auto tie = [&gradients = layers->parts().gradients](const Action& action, StepState& state) {
    gradients.rehearse_over_holders(state.units.at(action.target));
    return Work();
  };
  for (const Action& action : program.actions) {
    const Role role = role_of(action);
    if (role == Role::transfer) handlers[action.kind] = moved;
    else if (action.kind == Kinds::get().reduce_tie) handlers[action.kind] = handler_of(tie);
    else if (role != Role::compute && !moves_values(action))
      handlers[action.kind] = handler_of([](const Action&, StepState&) { return Work(); });
  }
  return handlers;
}

// One run of a program on meta tensors, action by action.
class Run {
 public:
  Run(const RehearsalInputs& inputs, const RankProgram& program, const RankUnits& held, const Coord& coord)
      : inputs_(inputs), info_(inputs.info), program_(program) {
    state_.model = &info_;
    state_.links = inputs.links(coord);
    state_.units = units_on_meta(info_, program, held);
    state_.parameters = leaves_of(info_, state_.units, coord, program_.precision.params);
    for (const BufferInfo& buffer : info_.buffers) state_.buffers.push_back(buffer.initial);
    layers_ = std::make_shared<LayerRuns>(inputs.model, state_, positions_run(program, info_));
    const auto complete = [this](int unit) { layers_->parts().gradients.complete(unit); };
    moved_ = std::make_shared<Moved>(info_, inputs.shapes);
    executor_.emplace(program, info_, rehearsed_handlers(program, layers_, moved_), complete, nullptr);
  }

  // Calls `after(index)` after each action.
  void run(const std::function<void(int)>& after) {
    layers_->begin(inputs_.micro_batches, program_, 0);
    int at = 0;
    try {
      for (const int n = static_cast<int>(program_.actions.size()); at < n; ++at) {
        executor_->run(state_, at, at + 1);
        after(at);
      }
    } catch (const std::exception& error) {  // an operator without a meta kernel throws through the layer's own code
      if (is_out_of_memory(error))
        throw OutOfMemory(
            fmt::format("layer '{}' cannot be planned: to learn the shapes of its operators' results takes more memory "
                        "than there is: {}",
                        info_.positions[program_.actions[at].target].name, describe(error)));
      misuse("layer '{}' cannot be planned: it does not run on tensors without memory (device meta): {}",
             info_.positions[program_.actions[at].target].name, why_not(describe(error)));
    }
  }
  const StepState& state() const { return state_; }
  std::map<std::string, SentBytes> take_sent() { return layers_->parts().stats.take_sent(); }
  int64_t take_message_bytes() { return moved_->take_sent_bytes(); }
  MovedValues& moved() { return layers_->parts().moved; }

 private:
  const RehearsalInputs& inputs_;
  const ModelInfo& info_;
  const RankProgram& program_;
  StepState state_;
  std::shared_ptr<LayerRuns> layers_;
  std::shared_ptr<Moved> moved_;
  std::optional<Executor> executor_;
};

Rehearsal run_all(const RehearsalInputs& inputs, const RankProgram& program, const RankUnits& held, const Coord& coord) {
  Rehearsal rehearsal;
  Run run(inputs, program, held, coord);
  FlopWatch flops;
  MetaWatch memory;
  run.run([&](int) {
    const MetaWatch::Reading reading = memory.take();
    const auto along = run.take_sent();
    int64_t sent = run.take_message_bytes();
    for (const auto& [axis, bytes] : along) sent += bytes.collective + bytes.all_to_all;
    rehearsal.actions.push_back({flops.take(), sent, along, run.moved().take_moved_bytes(), run.moved().bytes_away(),
                                 reading.allocated, reading.peak, reading.held});
  });
  return rehearsal;
}

}  // namespace

int Rehearsal::peak_action() const {
  if (actions.empty()) return -1;
  return static_cast<int>(std::ranges::max_element(actions, {}, &RehearsedAction::peak) - actions.begin());
}

int64_t Rehearsal::peak_bytes() const {
  return actions.empty() ? 0 : actions[static_cast<size_t>(peak_action())].peak;
}

TierBytes Rehearsal::most_bytes_away() const {
  TierBytes most;
  for (const RehearsedAction& action : actions) most.rise_to(action.away);
  return most;
}

const std::vector<at::Tensor>& ValueShapes::of(int position, int micro_batch) const {
  const size_t known = by_micro_batch.size() == 1 ? 0 : static_cast<size_t>(micro_batch);
  return by_micro_batch.at(known).at(static_cast<size_t>(position));
}

ValueShapes value_shapes(const RehearsalInputs& inputs, const RankProgram& like, const Coord& coord) {
  const ModelInfo& info = inputs.info;
  RankProgram forwards = base_program(info, like.mode, 1);
  forwards.precision = like.precision;
  std::erase_if(forwards.actions, [](const Action& action) { return action.kind != Kinds::get().forward; });
  const RankProgram* programs[] = {&forwards};
  const RankUnits whole = describe_units(info, programs, coord);
  ValueShapes shapes;
  const size_t wanted = are_alike(inputs.micro_batches) ? 1 : inputs.micro_batches.size();
  for (size_t m = 0; m < wanted; ++m) {
    RehearsalInputs one = inputs;
    one.micro_batches = {inputs.micro_batches[m]};
    auto& of_positions = shapes.by_micro_batch.emplace_back(info.positions.size());
    Run run(one, forwards, whole, coord);
    run.run([&](int index) {
      const int position = forwards.actions[index].target;
      for (int output = 0; output < static_cast<int>(info.positions[position].outputs.size()); ++output) {
        const at::Tensor& value = run.state().values.get({position, output}, 0);
        of_positions[position].push_back(value.defined() ? value.detach() : value);
      }
    });
  }
  return shapes;
}

Rehearsal rehearse(const RehearsalInputs& inputs, const RankProgram& program, const RankUnits& held, const Coord& coord) {
  if (!are_alike(inputs.micro_batches) || !stands_for_all(program)) return run_all(inputs, program, held, coord);
  const RankProgram part = first_micro_batches(program);
  RehearsalInputs first = inputs;
  first.micro_batches.resize(static_cast<size_t>(part.micro_batches));
  return extended(program, part, run_all(first, part, held, coord));
}

}  // namespace zt
