#include "numerics/support/hand_stages.h"

#include <ATen/ATen.h>

#include "zt/execute/executor.h"

namespace zt::test {

namespace {

// Kinds that move the outputs of a position to the next rank, and the gradients back.
struct Transfers {
  KindId send, recv, send_grad, recv_grad;
};

const Transfers& transfers() {
  static const auto add = [](const char* name, bool is_send, const char* channel, auto resources) {
    Kind kind{name, Index::position, true, "moves a value between stages", resources};
    kind.role = Role::transfer;
    kind.axes = [](const Action&, const ModelInfo&) { return std::vector<std::vector<std::string>>{}; };
    kind.message = [is_send, channel](const Action& action) {
      return Message{channel, action.axes(), static_cast<int>(action.number("to", 0)), is_send, 1};
    };
    return register_kind(std::move(kind));
  };
  static const auto value = [](const Action& action) { return Resource{resource::value, action.target, action.micro_batch}; };
  static const auto grad = [](const Action& action) { return Resource{resource::value_grad, action.target, action.micro_batch}; };
  static const Transfers kinds{add("HAND_SEND", true, "forward",
                                   [](const Action& a, const ModelInfo&) {
                                     return Resources{{value(a)}, {}};
                                   }),
                               add("HAND_RECV", false, "forward",
                                   [](const Action& a, const ModelInfo&) {
                                     return Resources{{}, {value(a)}};
                                   }),
                               add("HAND_SEND_GRAD", true, "backward",
                                   [](const Action& a, const ModelInfo&) {
                                     return Resources{{grad(a)}, {}, {value(a), grad(a)}};
                                   }),
                               add("HAND_RECV_GRAD", false, "backward", [](const Action& a, const ModelInfo&) {
                                 return Resources{{}, {grad(a)}};
                               })};
  return kinds;
}

class Move : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    Channel& channel = state.links->channel(*message_of(action));
    const Edge output{action.target, 0};
    const int m = action.micro_batch;
    if (action.kind == transfers().send) return channel.send({state.values.get(output, m)});
    if (action.kind == transfers().send_grad) {
      Work sent = channel.send({state.values.take_gradient(output, m)});
      state.values.drop(action.target, m);
      return sent;
    }
    auto [tensors, received] = channel.recv();
    received.wait();
    if (action.kind == transfers().recv) state.values.put(output, m, tensors.at(0));
    else state.values.add_gradient(output, m, tensors.at(0));
    return {};
  }
};

class HandStages : public Pass {
 public:
  HandStages(std::shared_ptr<Axis> axis, std::vector<int> begins, bool ties)
      : axis_(std::move(axis)), begins_(std::move(begins)), ties_(ties) {}
  std::string name() const override { return "hand_stages"; }
  Phase phase() const override { return Phase::structure; }
  std::shared_ptr<Mesh> mesh() const override { return std::const_pointer_cast<Mesh>(axis_->mesh.lock()); }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector{axis_->name}; }

  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override {
    const auto move = std::make_shared<Move>();
    const auto& [send, recv, send_grad, recv_grad] = transfers();
    return {{send, move}, {recv, move}, {send_grad, move}, {recv_grad, move}};
  }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    const Kinds& kinds = Kinds::get();
    const int stage = coord[axis_->name], begin = begins_[stage], end = begins_[stage + 1];
    program.split_axes = {axis_->name};
    const auto runs = [&](int position) { return position >= begin && position < end; };
    for (size_t unit = 0; unit < model.units.size(); ++unit)
      program.units[unit].held = std::ranges::any_of(model.units[unit].positions, runs);
    std::vector<Action> actions;
    const bool is_first = stage == 0, is_last = end == begins_.back();
    for (Action& action : program.actions) {
      const bool is_layer = role_of(action) == Role::compute;
      if (is_layer && !runs(action.target)) continue;
      if (action.kind == kinds.step && !program.units[action.target].held) continue;
      if (role_of(action) == Role::scalars) action.attrs["axes"] = Value::List{axis_->name};
      if (action.kind == kinds.count) action.attrs["samples"] = Value::List{};
      if (action.kind == kinds.norm && program.mode == Mode::train && ties_) insert_ties(program, model, actions);
      const int m = action.micro_batch;
      if (action.kind == kinds.forward && action.target == begin && !is_first)
        actions.push_back(move(transfers().recv, begin - 1, m, stage - 1));
      if (action.kind == kinds.backward && action.target == end - 1 && !is_last)
        actions.push_back(move(transfers().recv_grad, end - 1, m, stage + 1));
      actions.push_back(action);
      if (action.kind == kinds.forward && action.target == end - 1 && !is_last)
        actions.push_back(move(transfers().send, end - 1, m, stage + 1));
      if (action.kind == kinds.backward && action.target == begin && !is_first)
        actions.push_back(move(transfers().send_grad, begin - 1, m, stage - 1));
    }
    program.actions = std::move(actions);
    return program;
  }

 private:
  Action move(KindId kind, int position, int micro_batch, int to) const {
    return {
        .kind = kind, .target = position, .micro_batch = micro_batch, .attrs = {{"to", to}, {"axes", Value::List{axis_->name}}}};
  }

  int stages_using(const UnitInfo& unit) const {
    int stages = 0;
    for (size_t s = 0; s + 1 < begins_.size(); ++s) {
      stages += std::ranges::any_of(unit.positions, [&](int p) { return p >= begins_[s] && p < begins_[s + 1]; }) ? 1 : 0;
    }
    return stages;
  }

  void insert_ties(const RankProgram& program, const ModelInfo& model, std::vector<Action>& actions) const {
    for (size_t unit = 0; unit < model.units.size(); ++unit) {
      if (!program.units[unit].held || !model.units[unit].trainable || stages_using(model.units[unit]) < 2) continue;
      actions.push_back({.kind = Kinds::get().reduce_tie, .target = static_cast<int32_t>(unit)});
      actions.back().attrs["axes"] = Value::List{axis_->name};
    }
  }

  std::shared_ptr<Axis> axis_;
  std::vector<int> begins_;
  bool ties_;
};

}  // namespace

std::shared_ptr<Pass> make_hand_stages(std::shared_ptr<Axis> axis, std::vector<int> begins, bool ties) {
  return std::make_shared<HandStages>(std::move(axis), std::move(begins), ties);
}

}  // namespace zt::test
