// Times the fused loops, forward and backward, on a GPU against eager ATen with autograd, in alternation, in fp32 and bf16. 8192
// tokens, hidden 1024, ffn 4096, 32768 classes. Compares the results with float64 before timing. Without a GPU it registers
// nothing.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>

#include "layers/layers.h"
#include "nn_context.h"
#include "parts/activation.h"

namespace zt::nn {
namespace {

constexpr int64_t kRows = 8192, kHidden = 1024, kFfn = 4096, kClasses = 32768;

using Results = std::vector<at::Tensor>;
struct Pair {
  std::function<Results()> ours, eager;
};
using Make = std::function<Pair(at::ScalarType)>;

// Returns random numbers that every dtype represents exactly, so that the float64 reference has the same inputs.
at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::TensorOptions(at::kCUDA)).to(at::kBFloat16).to(dtype);
}
at::Tensor leaf(at::IntArrayRef shape, at::ScalarType dtype) {
  return random(shape, dtype).set_requires_grad(true);
}

Results forward_backward(const at::Tensor& y, const Results& leaves, const at::Tensor& cot) {
  Results all = torch::autograd::grad({y}, leaves, {cot}, false, false, true);
  all.insert(all.begin(), y.detach());
  return all;
}

Pair norm(at::ScalarType dtype) {
  const std::shared_ptr<Layer> layer = make_layernorm(Value::Table{{"hidden", kHidden}});
  const at::Tensor x = leaf({kRows, kHidden}, dtype), dy = random({kRows, kHidden}, dtype);
  Results leaves{x};
  for (const auto& param : layer->params()) leaves.push_back(values_of(*param) = leaf(param->shape, dtype));
  const auto context = std::make_shared<BenchContext>();
  return {[=] {
            Results all = forward_backward(layer->forward({x}, *context)[0], leaves, dy);
            for (size_t i = 2; i < all.size(); ++i) all[i] = context->views.at(layer->params()[i - 2].get());
            return all;
          },
          [=] { return forward_backward(at::layer_norm(x, {kHidden}, leaves[1], leaves[2], 1e-5), leaves, dy); }};
}

Pair activation(at::ScalarType dtype, Activation kind) {
  const int64_t before = columns_before(kind, kFfn);
  const at::Tensor pre = leaf({kRows, before}, dtype), bias = random({before}, dtype), dy = random({kRows, kFfn}, dtype);
  return {[=] {
            const at::Tensor y = activate(kind, pre.detach(), bias);
            return Results{y, activate_backward(kind, dy.clone(), pre.detach(), bias).pre};
          },
          [=] {
            const at::Tensor x = pre + bias;
            const auto half = [&](int64_t i) { return x.narrow(1, i * kFfn, kFfn); };
            return forward_backward(kind == Activation::swiglu ? at::silu(half(0)) * half(1) : at::gelu(x, "tanh"), {pre}, dy);
          }};
}

Pair cross_entropy(at::ScalarType dtype) {
  const at::Tensor logits = leaf({1, kRows, kClasses}, dtype), labels = at::randint(kClasses, {1, kRows}, at::kLong).cuda();
  const auto context = std::make_shared<BenchContext>();
  context->fields["labels"] = labels;
  const std::shared_ptr<Layer> layer = make_cross_entropy(Value::Table{});
  return {[=] {
            layer->forward({logits}, *context);
            return forward_backward(context->last_loss, {logits}, at::ones_like(context->last_loss));
          },
          [=] {
            const at::Tensor rows = logits.view({kRows, kClasses});
            const at::Tensor loss = at::cross_entropy_loss(rows, labels.view({kRows}), {}, at::Reduction::Sum);
            return forward_backward(loss, {logits}, at::ones_like(loss));
          }};
}

double distance(const Results& results, const Results& exact) {
  double worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    worst = std::max(worst, ((results[i].to(at::kDouble) - exact[i]).norm() / exact[i].norm()).item<double>());
  }
  return worst;
}

// Returns the wall-clock seconds until the GPU has finished.
double seconds(const std::function<Results()>& run) {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const auto start = std::chrono::steady_clock::now();
  benchmark::DoNotOptimize(run());
  cuda.synchronizeStream(cuda.getStream(cuda.getDevice()));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Pair seeded(const Make& make, at::ScalarType dtype) {
  at::manual_seed(1);
  return make(dtype);
}

// The error bounds are those of bench/nn/nn_loops.cpp. In float32 the bound is eight times as large, because the sums over 8192
// rows are eight times as long.
void in_turns(benchmark::State& state, const Make& make, at::ScalarType dtype) {
  const Pair pair = seeded(make, dtype);
  const double error = distance(pair.ours(), seeded(make, at::kDouble).eager());
  if (!(error < (dtype == at::kFloat ? 512 * 0x1p-24 : 0x1p-8))) fault("ours is off by {}", error);
  pair.eager();  // warm-up, as for `ours`
  double ours = 0, eager = 0;
  for (auto _ : state) {
    ours += seconds(pair.ours);
    eager += seconds(pair.eager);
  }
  state.counters["ours_us"] = ours * 1e6 / static_cast<double>(state.iterations());
  state.counters["eager_us"] = eager * 1e6 / static_cast<double>(state.iterations());
  state.counters["ratio"] = eager / ours;
  state.counters["ours_off"] = error;
}

void add(const std::string& name, const Make& make) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::string full = "cuda/" + name + (dtype == at::kFloat ? "/fp32" : "/bf16");
    benchmark::RegisterBenchmark(full.c_str(), [=](benchmark::State& state) { in_turns(state, make, dtype); })
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(1);
  }
}

const bool kAdded = [] {
  if (!dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !at::hasCUDA()) return false;
  add("layernorm", norm);
  add("gelu_tanh", [](at::ScalarType dtype) { return activation(dtype, Activation::gelu_tanh); });
  add("swiglu", [](at::ScalarType dtype) { return activation(dtype, Activation::swiglu); });
  add("cross_entropy", cross_entropy);
  return true;
}();

}  // namespace
}  // namespace zt::nn
