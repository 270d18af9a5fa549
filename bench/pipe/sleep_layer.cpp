#include "sleep_layer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <thread>

namespace zt {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Ends after the time has passed, as precisely as the clock allows: sleep_for wakes up about 60 us late.
void sleep_for(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  constexpr std::chrono::microseconds kLate(200);
  if (time > kLate) std::this_thread::sleep_for(time - kLate);
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

class SleepFunction : public torch::autograd::Function<SleepFunction> {
 public:
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const at::Tensor& weight, const SleepTimes* times,
                            Context* context, const Param* param) {
    sleep_for(times->forward);
    node->save_for_backward({x, weight});
    node->saved_data["times"] = reinterpret_cast<int64_t>(times);
    node->saved_data["context"] = reinterpret_cast<int64_t>(context);
    node->saved_data["param"] = reinterpret_cast<int64_t>(param);
    return x * weight;
  }

  static variable_list backward(AutogradContext* node, const variable_list& grads) {
    const auto* times = reinterpret_cast<const SleepTimes*>(node->saved_data["times"].toInt());
    auto* context = reinterpret_cast<Context*>(node->saved_data["context"].toInt());
    const auto* param = reinterpret_cast<const Param*>(node->saved_data["param"].toInt());
    const at::Tensor x = node->get_saved_variables()[0], weight = node->get_saved_variables()[1];
    sleep_for(times->input_grad);
    context->defer([sink = context->grad_sink(*param), times, gradient = (grads[0] * x).sum().view({1})] {
      sleep_for(times->weight_grad);
      sink().add(gradient);
    });
    return {grads[0] * weight, {}, {}, {}, {}};
  }
};

class SleepLayer : public Layer {
 public:
  SleepLayer(const SleepTimes& times, bool is_first) : times_(times), is_first_(is_first), weight_(std::make_shared<Param>()) {
    weight_->name = "weight";
    weight_->shape = {1};
    weight_->init = init_ones();
  }
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor x = is_first_ ? context.batch("x") : in[0];
    return {SleepFunction::apply(x, context.param(*weight_), &times_, &context, weight_.get())};
  }
  Params params() const override { return {weight_}; }
  Io io() const override { return {.inputs = is_first_ ? std::vector<std::string>() : std::vector<std::string>{"h"}}; }
  std::string kind() const override { return "sleep"; }

 private:
  SleepTimes times_;
  bool is_first_;
  std::shared_ptr<Param> weight_;
};

class MeanLoss : public Layer {
 public:
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    context.loss("loss", in[0].sum(), Per::sample);
    return {};
  }
  Io io() const override { return {.outputs = {}, .losses = {{"loss", Per::sample}}}; }
  std::string kind() const override { return "mean_loss"; }
};

}  // namespace

std::shared_ptr<Layer> make_sleep_layer(const SleepTimes& times, bool is_first) {
  return std::make_shared<SleepLayer>(times, is_first);
}

std::shared_ptr<Layer> make_mean_loss() {
  return std::make_shared<MeanLoss>();
}

}  // namespace zt
