#include "inner_layer.h"

#include "zt/model/layer_extras.h"

namespace zt {
ZT_DEFINE_OBJECT(nn::InnerLayer, "InnerLayer")
}  // namespace zt

namespace zt::nn {

namespace {

// The context of an inner layer: that of the outer one, with random numbers of its own. Lives as long as the outer one.
class InnerContext final : public Context {
 public:
  InnerContext(Context& outer, uint64_t place, uint64_t call) : outer_(outer), place_(place), call_(call) {
    mode = outer.mode;
    recompute = outer.recompute;
    adapters = outer.adapters;
    step = outer.step;
    position = outer.position;
    micro_batch = outer.micro_batch;
  }

  const at::Tensor& param(const Param& param) override { return outer_.param(param); }
  at::Tensor batch(const std::string& name) override { return outer_.batch(name); }
  bool has_batch(const std::string& name) const override { return outer_.has_batch(name); }
  int64_t first_sample() const override { return outer_.first_sample(); }
  Philox rng(Purpose purpose) const override { return Philox::keyed(outer_.rng(purpose).key(), purpose, 1 + place_, call_); }
  Communicator& comm(const std::string& axis) override { return outer_.comm(axis); }
  Communicator& control(const std::string& axis) override { return outer_.control(axis); }
  int rank_along(const std::string& axis) override { return outer_.rank_along(axis); }
  int ranks_along(const std::string& axis) override { return outer_.ranks_along(axis); }
  const TokenPlaces& tokens() override { return outer_.tokens(); }
  KvCache* kv_cache() override { return outer_.kv_cache(); }
  void loss(const std::string& name, at::Tensor sum, Per per) override { outer_.loss(name, std::move(sum), per); }
  void sent(const std::string& axis, int64_t bytes, Pattern pattern) override { outer_.sent(axis, bytes, pattern); }
  SinkFn grad_sink(const Param& param) override { return outer_.grad_sink(param); }
  void defer(std::function<void()> weight_gradient) override { outer_.defer(std::move(weight_gradient)); }

 private:
  Context& outer_;
  uint64_t place_, call_;
};

// self.NAME:forward(inputs..., ctx) -> one tensor per output
int run_forward(lua_State* L) {
  const auto inner = lua::check<InnerLayer>(L, 1);
  Context* outer = inner->outer->context;
  if (!outer) misuse("self.{} is valid during the forward of its outer layer only: do not keep it", inner->name);
  const auto count = static_cast<int>(inner->layer->io().inputs.size()), given = lua_gettop(L) - 2;
  if (given != count || lua::check<LuaContext>(L, lua_gettop(L)) != inner->outer)
    misuse("self.{}:forward takes {} input(s) and ctx, got {} value(s) before ctx", inner->name, count, given);
  if (inner->calls > 0 && outer->kv_cache() && inner->layer->token_scope() == TokenScope::cached)
    misuse("self.{} keeps keys and values, so forward may call it once: give a second layer for the second call", inner->name);
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < count; ++i) inputs.push_back(lua::check_tensor(L, 2 + i));
  const auto context = std::make_shared<InnerContext>(*outer, inner->place, inner->calls++);
  outer->own(context);
  const RunningContext running(*context);
  const std::vector<at::Tensor> outputs = inner->layer->forward(inputs, *context);
  for (const at::Tensor& output : outputs) lua::push(L, output);
  return static_cast<int>(outputs.size());
}

}  // namespace

void check_inner(const std::string& name, const Layer& layer) {
  const auto* extras = dynamic_cast<const LayerExtras*>(&layer);
  const bool needs_position = dynamic_cast<const ExchangeLayer*>(&layer) ||
                              (extras && (!extras->buffers().empty() || extras->has_update())) || !layer.io().stats.empty();
  if (needs_position)
    misuse(
        "nn.layer.layers.{}: a '{}' layer has metrics or statistics, changes tensors itself or sends rows to other ranks, so it needs a "
        "place of its own in the model: put it beside this layer, in nn.sequential",
        name, layer.kind());
  const Io of_layer = layer.io();
  if (std::ranges::any_of(of_layer.cut_inputs, [](const auto& input) { return !input.second.empty(); }) ||
      std::ranges::any_of(of_layer.outputs, [](const Output& output) { return !output.cut_over.empty(); }))
    misuse(
        "nn.layer.layers.{}: with sequence_parallel, a '{}' layer has some tokens of the residual stream only: put it beside this "
        "layer, in nn.sequential, or leave sequence_parallel out",
        name, layer.kind());
}

void enclose(const std::string& name, Layer& layer, Io& io) {
  for (const auto& param : layer.params()) param->name = name + "." + param->name;
  for (const LossInfo& loss : layer.io().losses) {
    if (std::ranges::find(io.losses, loss) == io.losses.end()) io.losses.push_back(loss);
  }
}

void open_inner_layer(lua::Module& module) {
  module.type<InnerLayer>().method<run_forward>("forward");
}

}  // namespace zt::nn
