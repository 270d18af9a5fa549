// Times a GPT-2 block, forward and backward, at [8, 128, 256] in fp32, with gradients written into sinks as in a step program,
// and the same block in eager ATen with autograd. Compares both results before timing.
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "layers/layers.h"
#include "nn_context.h"

namespace zt::nn {
namespace {

constexpr int64_t kSamples = 8, kSeq = 128, kHidden = 256, kHeads = 8;

struct Setup {
  std::shared_ptr<Layer> layer = make_block(Value::Table{{"hidden", kHidden}, {"heads", kHeads}});
  std::vector<at::Tensor> values;
  at::Tensor x = at::randn({kSamples, kSeq, kHidden}).set_requires_grad(true);
  at::Tensor cot = at::randn({kSamples, kSeq, kHidden});
  BenchContext context;

  Setup() {
    for (const auto& param : layer->params()) {
      const at::Tensor wide = at::empty(param->shape, at::kDouble);
      param->init(1, param->name, 0, {wide.data_ptr<double>(), static_cast<size_t>(wide.numel())});
      values_of(*param) = wide.to(at::kFloat).set_requires_grad(true);
      values.push_back(values_of(*param));
    }
  }

  std::vector<at::Tensor> backward(const at::Tensor& y) const {
    torch::autograd::variable_list leaves{x};
    leaves.insert(leaves.end(), values.begin(), values.end());
    return torch::autograd::grad({y}, leaves, {cot}, false, false, true);
  }
  std::vector<at::Tensor> ours() { return backward(layer->forward({x}, context)[0]); }

  // `values` holds the parameters in the layer's order: norm1, qkv, out, norm2, up, down, each with weight and bias.
  std::vector<at::Tensor> eager() const {
    const auto& p = values;
    const auto heads = [](const at::Tensor& t) { return t.view({kSamples, kSeq, kHeads, kHidden / kHeads}).transpose(1, 2); };
    const auto qkv = at::linear(at::layer_norm(x, {kHidden}, p[0], p[1]), p[2], p[3]).split(kHidden, 2);
    const at::Tensor mixed = at::scaled_dot_product_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {}, 0, true);
    const at::Tensor h = x + at::linear(mixed.transpose(1, 2).reshape(x.sizes()), p[4], p[5]);
    const at::Tensor inner = at::gelu(at::linear(at::layer_norm(h, {kHidden}, p[6], p[7]), p[8], p[9]), "tanh");
    return backward(h + at::linear(inner, p[10], p[11]));
  }

  // Throws Fault if the gradients differ by more than rounding: in fp32 each is about sqrt(1024) * eps from the exact gradient.
  void check() {
    const auto mine = ours(), theirs = eager();
    for (size_t i = 0; i < theirs.size(); ++i) {
      const at::Tensor got = mine[i].defined() ? mine[i] : context.views.at(layer->params()[i - 1].get());
      const double gap = ((got - theirs[i]).norm() / theirs[i].norm()).item<double>();
      if (!(gap < 64 * 0x1p-23)) fault("gradient {} of the two blocks differs by {}", i, gap);
    }
  }
};

void block_ours(benchmark::State& state) {
  Setup setup;
  setup.check();
  for (auto _ : state) benchmark::DoNotOptimize(setup.ours());
}

void block_eager(benchmark::State& state) {
  Setup setup;
  for (auto _ : state) benchmark::DoNotOptimize(setup.eager());
}

BENCHMARK(block_ours)->Unit(benchmark::kMillisecond)->MinTime(2);
BENCHMARK(block_eager)->Unit(benchmark::kMillisecond)->MinTime(2);

}  // namespace
}  // namespace zt::nn

BENCHMARK_MAIN();
