#include "run.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "zt/base/error.h"

namespace zt::test {

Subject subject(std::shared_ptr<Layer> layer) {
  return {[layer](at::TensorList in, Context& context) { return layer->forward(in, context); }, layer->params()};
}

Subject subject(std::shared_ptr<Model> model) {
  const auto forward = [model](at::TensorList, Context& context) {
    std::vector<std::vector<at::Tensor>> outputs;  // by position
    for (const PositionInfo& info : model->info().positions) {
      std::vector<at::Tensor> inputs;
      for (const Edge& edge : info.inputs) inputs.push_back(outputs[edge.position][edge.output]);
      outputs.push_back(model->positions()[outputs.size()].layer->forward(inputs, context));
    }
    return outputs.back();
  };
  return {forward, model->params()};
}

namespace {

void put(Param& param, const at::Tensor& values, at::ScalarType dtype) {
  values_of(param) = values.to(dtype, false, true).set_requires_grad(param.trainable);
}

double objective(const Subject& subject, at::TensorList inputs, FakeContext& context, const at::Tensor& cot) {
  const at::NoGradGuard no_grad;
  context.losses.clear();
  const auto out = subject.forward(inputs, context);
  double total = 0;
  if (cot.defined()) total += (out[0] * cot).sum().item<double>();
  for (const auto& loss : context.losses) total += loss.sum.item<double>();
  return total;
}

// Returns the gradient of `objective` in x by moving each element of x up and down.
at::Tensor central_differences(const at::Tensor& x, const std::function<double()>& objective) {
  // The truncation error is of order h^2 = 1e-10, the rounding error of order eps / h = 2e-11 times the objective.
  constexpr double kStep = 1e-5;
  const at::Tensor gradient = at::empty_like(x);
  auto* data = x.data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double kept = data[i];
    data[i] = kept + kStep;
    const double above = objective();
    data[i] = kept - kStep;
    const double below = objective();
    data[i] = kept;
    gradient.data_ptr<double>()[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

}  // namespace

void initialise(const Subject& subject, uint64_t seed, at::ScalarType dtype) {
  for (const auto& param : subject.params) {
    const at::Tensor values = at::empty(param->shape, at::kDouble);
    param->init(seed, param->name, 0, {values.data_ptr<double>(), static_cast<size_t>(values.numel())});
    put(*param, values, dtype);
  }
}

Subject initialised(const std::shared_ptr<Layer>& layer, at::ScalarType dtype) {
  Subject made = subject(layer);
  initialise(made, 9, dtype);
  return made;
}

void set_values(const Subject& subject, const Tensors& values, at::ScalarType dtype) {
  EXPECT_EQ(subject.params.size(), values.size());
  for (const auto& param : subject.params) {
    ASSERT_TRUE(values.contains(param->name)) << param->name;
    ASSERT_EQ(values.at(param->name).sizes().vec(), param->shape) << param->name;
    put(*param, values.at(param->name), dtype);
  }
}

Result run(const Subject& subject, std::vector<at::Tensor> inputs, FakeContext& context, const at::Tensor& cot) {
  for (auto& input : inputs) input = input.detach().set_requires_grad(true);
  const auto outputs = subject.forward(inputs, context);
  Result result;
  torch::autograd::variable_list roots, root_grads, leaves = inputs;
  if (!outputs.empty()) result.out = outputs[0];
  if (cot.defined()) {
    roots.push_back(outputs[0]);
    root_grads.push_back(cot);
  }
  for (const auto& loss : context.losses) {
    result.loss = result.loss.defined() ? result.loss + loss.sum : loss.sum;
    roots.push_back(loss.sum);
    root_grads.push_back(at::ones_like(loss.sum));
  }
  for (const auto& param : subject.params) {
    if (param->trainable) leaves.push_back(values_of(*param));
  }
  const auto grads = torch::autograd::grad(roots, leaves, root_grads, false, false, true);
  result.input_grads.assign(grads.begin(), grads.begin() + static_cast<int64_t>(inputs.size()));
  size_t next = inputs.size();
  for (const auto& param : subject.params) {
    if (!param->trainable) continue;
    const at::Tensor returned = grads[next++];
    const auto sunk = context.sunk.find(param.get());
    EXPECT_FALSE(returned.defined() && sunk != context.sunk.end()) << param->name << " is both sunk and returned";
    if (sunk != context.sunk.end()) result.grads[param->name] = sunk->second;
    else if (returned.defined()) result.grads[param->name] = returned;
  }
  return result;
}

double gradient_error(const Subject& subject, std::vector<at::Tensor> inputs, FakeContext& context) {
  const auto first = subject.forward(inputs, context);
  context.losses.clear();
  const at::Tensor cot = !first.empty() && first[0].defined()
                             ? (at::arange(first[0].numel(), at::kDouble) + 1).sin().view(first[0].sizes())
                             : at::Tensor();
  const Result result = run(subject, inputs, context, cot);
  const auto value = [&] { return objective(subject, inputs, context, cot); };
  double worst = 0;
  const auto compare = [&](const at::Tensor& x, const at::Tensor& gradient, const std::string& name) {
    ASSERT_TRUE(gradient.defined()) << name;
    const at::Tensor numeric = central_differences(x, value);
    const double scale = 1 + numeric.abs().max().item<double>();
    worst = std::max(worst, (numeric - gradient).abs().max().item<double>() / scale);
  };
  for (size_t i = 0; i < inputs.size(); ++i) compare(inputs[i], result.input_grads[i], "input");
  for (const auto& param : subject.params) {
    if (param->trainable) compare(values_of(*param).detach(), result.grads.at(param->name), param->name);
  }
  return worst;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.detach().to(at::kDouble);
  const double norm = wide.norm().item<double>();
  const double gap = (a.detach().to(at::kDouble) - wide).norm().item<double>();
  return gap == 0 ? 0 : gap / norm;
}

at::Tensor longs(const std::vector<int64_t>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kLong).view(shape);
}

std::string misuse_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Misuse& error) {
    return error.what();
  }
  return "no Misuse";
}

}  // namespace zt::test
