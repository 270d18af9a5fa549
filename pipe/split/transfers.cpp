#include "transfers.h"

#include "zt/base/error.h"

namespace zt::pipe {

namespace {

Resource resource(ResourceId kind, const Action& action) {
  return {kind, action.target, action.micro_batch};
}

template <ResourceId kind>
Resources send_resources(const Action& action, const ModelInfo&) {
  Resources resources{.reads = {resource(kind, action)}, .writes = {}};
  if (kind == resource::value_grad || action.flag("free")) resources.frees = resources.reads;
  return resources;
}

template <ResourceId kind>
Resources recv_resources(const Action& action, const ModelInfo&) {
  return {.reads = {}, .writes = {resource(kind, action)}};
}

Resources free_resources(const Action& action, const ModelInfo&) {
  return {.reads = {}, .writes = {}, .frees = {resource(resource::value, action)}};
}

// Checks the attributes of a transfer to or from rank `peer`, the name of an attribute.
void check_peer(const std::string& peer, const Action& action) {
  if (action.number(peer, -1) < 0) misuse("it names no rank: give {}=RANK, an index along axes", peer);
  if (action.number("depth", 1) < 1) misuse("depth={}: a channel holds at least one message", action.number("depth", 1));
}

KindId add(const char* name, auto resources, const char* doc, const char* channel, bool is_send) {
  Kind kind{name, Index::position, true, doc, resources};
  kind.role = Role::transfer;
  kind.axes = [](const Action&, const ModelInfo&) { return std::vector<std::vector<std::string>>{}; };
  kind.check = AttributeRule{};
  if (channel) {
    const std::string peer = is_send ? "to" : "from";
    AttributeRule rule{.attrs = {"axes", "depth", peer},
                       .needs_axes = true,
                       .check = [peer](const Action& action, const RankProgram&) { check_peer(peer, action); }};
    if (kind.name == "SEND") rule.attrs.emplace_back("free");
    rule.only_in_training = kind.name.ends_with("_GRAD");
    kind.check = std::move(rule);
    kind.message = [=](const Action& action) {
      return Message{.channel = channel,
                     .axes = action.axes(),
                     .peer = static_cast<int>(action.number(peer, 0)),
                     .is_send = is_send,
                     .depth = static_cast<int>(action.number("depth", 1))};
    };
  }
  return register_kind(std::move(kind));
}

class Transfer : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    const Transfers& kinds = Transfers::get();
    if (state.failure) return join(action, state);
    if (action.kind == kinds.send || action.kind == kinds.send_grad) return send(action, state);
    if (action.kind == kinds.free) state.values.drop_values(action.target, action.micro_batch);
    else receive(action, state);
    return {};
  }

 private:
  static int outputs_of(const Action& action, const StepState& state) {
    return static_cast<int>(state.model->positions[action.target].outputs.size());
  }

  // A rank whose step has failed sends one tensor more than there are outputs, all of them undefined, and reads nothing.
  static Work join(const Action& action, StepState& state) {
    const auto message = message_of(action);
    Channel& channel = state.links->channel(*message);
    if (message->is_send) return channel.send(std::vector<at::Tensor>(static_cast<size_t>(outputs_of(action, state) + 1)));
    channel.recv().work.wait();
    return {};
  }

  static Work send(const Action& action, StepState& state) {
    const bool is_value = action.kind == Transfers::get().send;
    std::vector<at::Tensor> tensors;
    for (int output = 0; output < outputs_of(action, state); ++output) {
      const Edge edge{action.target, output};
      tensors.push_back(is_value ? state.values.get(edge, action.micro_batch)
                                 : state.values.take_gradient(edge, action.micro_batch));
    }
    if (action.flag("free")) state.values.drop_values(action.target, action.micro_batch);
    return state.links->channel(*message_of(action)).send(std::move(tensors));
  }

  static void receive(const Action& action, StepState& state) {
    const bool is_value = action.kind == Transfers::get().recv;
    auto [tensors, received] = state.links->channel(*message_of(action)).recv();
    received.wait();
    if (static_cast<int>(tensors.size()) > outputs_of(action, state)) throw PeerFailed();
    for (int output = 0; output < static_cast<int>(tensors.size()); ++output) {
      const Edge edge{action.target, output};
      if (is_value) state.values.put(edge, action.micro_batch, std::move(tensors[static_cast<size_t>(output)]));
      else state.values.add_gradient(edge, action.micro_batch, tensors[static_cast<size_t>(output)]);
    }
  }
};

}  // namespace

const Transfers& Transfers::get() {
  static const Transfers kinds{
      .send = add("SEND", send_resources<resource::value>, "sends the outputs of a position to another stage", "forward", true),
      .recv = add("RECV", recv_resources<resource::value>, "receives the outputs of a position that another rank runs", "forward",
                  false),
      .send_grad =
          add("SEND_GRAD", send_resources<resource::value_grad>, "sends the gradient of a position's outputs", "backward", true),
      .recv_grad = add("RECV_GRAD", recv_resources<resource::value_grad>, "receives the gradient of a position's outputs",
                       "backward", false),
      .free = add("FREE", free_resources, "drops outputs that no later action reads", nullptr, false)};
  return kinds;
}

std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> transfer_handlers() {
  const auto handler = std::make_shared<Transfer>();
  const auto& [send, recv, send_grad, recv_grad, free] = Transfers::get();
  return {{send, handler}, {recv, handler}, {send_grad, handler}, {recv_grad, handler}, {free, handler}};
}

}  // namespace zt::pipe
