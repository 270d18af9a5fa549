// Times each fused loop, forward and backward, against eager ATen with autograd, in alternation, in fp32 and bf16. 1024 tokens,
// hidden 768, 12 heads, ffn 3072, 8192 classes. Compares the results with float64 before timing.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <ctime>

#include "layers/layers.h"
#include "nn_context.h"
#include "parts/activation.h"
#include "parts/rotary.h"

namespace zt::nn {
namespace {

constexpr int64_t kRows = 1024, kHidden = 768, kFfn = 3072, kClasses = 8192, kHeads = 12;

using Results = std::vector<at::Tensor>;
using Run = std::function<Results()>;

struct Pair {
  Run ours, eager;
};

// Returns random numbers that every dtype represents exactly, so that the float64 reference has the same inputs.
at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape).to(at::kBFloat16).to(dtype);
}
at::Tensor leaf(at::IntArrayRef shape, at::ScalarType dtype) {
  return random(shape, dtype).set_requires_grad(true);
}

// Returns the largest || result - exact || / || exact || of all results.
double distance(const Results& results, const Results& exact) {
  double worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    worst = std::max(worst, ((results[i].to(at::kDouble) - exact[i]).norm() / exact[i].norm()).item<double>());
  }
  return worst;
}

using Make = std::function<Pair(at::ScalarType)>;

Pair seeded(const Make& make, at::ScalarType dtype) {
  at::manual_seed(1);
  return make(dtype);
}

// Times both in alternation, in processor time. A row shows both times, their ratio, and the relative error of each against ATen
// in float64. Throws Fault if our error reaches its bound: in bf16 one rounding, 2^-8; in fp32 the error of the sums, 64 * 2^-24.
void in_turns(benchmark::State& state, const Make& make, at::ScalarType dtype) {
  const Pair pair = seeded(make, dtype);
  const Results exact = seeded(make, at::kDouble).eager();
  const double error = distance(pair.ours(), exact);
  if (!(error < (dtype == at::kFloat ? 64 * 0x1p-24 : 0x1p-8))) fault("ours is off by {}", error);
  std::clock_t ours = 0, eager = 0;
  for (auto _ : state) {
    const std::clock_t start = std::clock();
    benchmark::DoNotOptimize(pair.ours());
    const std::clock_t middle = std::clock();
    benchmark::DoNotOptimize(pair.eager());
    ours += middle - start;
    eager += std::clock() - middle;
  }
  const double unit = 1e6 / CLOCKS_PER_SEC / static_cast<double>(state.iterations());
  state.counters["ours_us"] = static_cast<double>(ours) * unit;
  state.counters["eager_us"] = static_cast<double>(eager) * unit;
  state.counters["ratio"] = static_cast<double>(eager) / static_cast<double>(ours);
  state.counters["ours_off"] = error;
  state.counters["eager_off"] = distance(pair.eager(), exact);
}

// Returns the output and the gradients of the leaves.
Results forward_backward(const at::Tensor& y, const std::vector<at::Tensor>& leaves, const at::Tensor& cot) {
  Results all = torch::autograd::grad({y}, leaves, {cot}, false, false, true);
  all.insert(all.begin(), y.detach());
  return all;
}

Pair norm(at::ScalarType dtype, bool is_layernorm) {
  const Value::Table options{{"hidden", kHidden}};
  const auto layer = is_layernorm ? make_layernorm(options) : make_rmsnorm(options);
  const at::Tensor x = leaf({kRows, kHidden}, dtype), dy = random({kRows, kHidden}, dtype);
  std::vector<at::Tensor> leaves{x};
  for (const auto& param : layer->params()) leaves.push_back(values_of(*param) = leaf(param->shape, dtype));
  const auto context = std::make_shared<BenchContext>();
  const Run ours = [=] {
    Results all = forward_backward(layer->forward({x}, *context)[0], leaves, dy);
    for (size_t i = 2; i < all.size(); ++i) all[i] = context->views.at(layer->params()[i - 2].get());
    return all;
  };
  const Run eager = [=] {
    const at::Tensor y =
        is_layernorm ? at::layer_norm(x, {kHidden}, leaves[1], leaves[2], 1e-5) : at::rms_norm(x, {kHidden}, leaves[1], 1e-5);
    return forward_backward(y, leaves, dy);
  };
  return {ours, eager};
}

Pair activation(at::ScalarType dtype, Activation kind) {
  const int64_t before = columns_before(kind, kFfn);
  const at::Tensor pre = leaf({kRows, before}, dtype), bias = random({before}, dtype), dy = random({kRows, kFfn}, dtype);
  const Run ours = [=] {
    const at::Tensor y = activate(kind, pre.detach(), bias);
    const ActivationGradient gradient = activate_backward(kind, dy.clone(), pre.detach(), bias);
    return Results{y, gradient.pre};
  };
  const Run eager = [=] {
    const at::Tensor x = pre + bias;
    const auto half = [&](int64_t i) { return x.narrow(1, i * kFfn, kFfn); };
    return forward_backward(kind == Activation::swiglu ? at::silu(half(0)) * half(1) : at::gelu(x, "tanh"), {pre}, dy);
  };
  return {ours, eager};
}

Pair cross_entropy(at::ScalarType dtype) {
  const at::Tensor logits = leaf({1, kRows, kClasses}, dtype), labels = at::randint(kClasses, {1, kRows}, at::kLong);
  const auto context = std::make_shared<BenchContext>();
  context->fields["labels"] = labels;
  const auto layer = make_cross_entropy(Value::Table{});
  const Run ours = [=] {
    layer->forward({logits}, *context);
    return forward_backward(context->last_loss, {logits}, at::ones({}, at::kDouble));
  };
  const Run eager = [=] {
    const at::Tensor loss = at::cross_entropy_loss(logits.view({kRows, kClasses}), labels.view({kRows}), {}, at::Reduction::Sum);
    return forward_backward(loss, {logits}, at::ones_like(loss));
  };
  return {ours, eager};
}

Pair rotary(at::ScalarType dtype) {
  constexpr int64_t kSeq = 128, kDim = kHidden / kHeads;
  const at::Tensor x = leaf({kRows / kSeq, kSeq, kHidden}, dtype), dy = random(x.sizes(), dtype);
  const auto tables = std::make_shared<Rotary>(kDim, 10000);
  const Angles tabled = tables->angles(at::arange(kSeq), dtype);
  const Run ours = [=] {
    const Angles angles = tables->angles(at::arange(kSeq), dtype);
    const Results all{x.detach().clone(), dy.clone()};
    rotate_heads(all[0], angles, kHeads, Turn::forward);
    rotate_heads(all[1], angles, kHeads, Turn::back);
    return all;
  };
  const auto twice = [&](const at::Tensor& t) { return at::cat({t, t}, 1).to(dtype).view({1, kSeq, 1, kDim}); };
  const Run eager = [=, cosine = twice(tabled.cosine), sine = twice(tabled.sine)] {
    const at::Tensor h = x.view({kRows / kSeq, kSeq, kHeads, kDim});
    const at::Tensor turned = at::cat({-h.narrow(3, kDim / 2, kDim / 2), h.narrow(3, 0, kDim / 2)}, 3);
    return forward_backward((h * cosine + turned * sine).view(x.sizes()), {x}, dy);
  };
  return {ours, eager};
}

void add(const std::string& name, const Make& make) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    benchmark::RegisterBenchmark((name + (dtype == at::kFloat ? "/fp32" : "/bf16")).c_str(),
                                 [=](benchmark::State& state) { in_turns(state, make, dtype); })
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(1);
  }
}

const bool kAdded = [] {
  add("layernorm", [](at::ScalarType dtype) { return norm(dtype, true); });
  add("rmsnorm", [](at::ScalarType dtype) { return norm(dtype, false); });
  add("gelu_tanh", [](at::ScalarType dtype) { return activation(dtype, Activation::gelu_tanh); });
  add("swiglu", [](at::ScalarType dtype) { return activation(dtype, Activation::swiglu); });
  add("cross_entropy", cross_entropy);
  add("rotary", rotary);
  return true;
}();

}  // namespace
}  // namespace zt::nn
