// Times the head and an MLP by tiles of rows, forward and backward, against the same layer without tiles, in alternation, in fp32
// and bf16: 2048 rows, hidden 512, 8192 classes, ffn 2048. Compares both results before timing.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <ctime>

#include "layers/layers.h"
#include "nn_context.h"

namespace zt::nn {
namespace {

constexpr int64_t kTiledRows = 2048, kTiledHidden = 512, kTiledFfn = 2048, kTiledClasses = 8192;

// A layer and its context, which holds the gradients of the weights.
struct Subject {
  std::shared_ptr<Layer> layer;
  BenchContext context;

  Subject(std::shared_ptr<Layer> made, at::ScalarType dtype) : layer(std::move(made)) {
    at::manual_seed(1);
    for (const auto& param : layer->params())
      values_of(*param) = at::randn(param->shape).mul_(0.02).to(dtype).set_requires_grad(true);
    context.fields["labels"] = (at::arange(kTiledRows, at::kLong) * 7).remainder(kTiledClasses).view({1, kTiledRows});
  }
  // Returns the gradient of x. cot: of the output, or undefined if the layer adds a loss.
  at::Tensor backward(const at::Tensor& x, const at::Tensor& cot) {
    std::vector<at::Tensor> leaves{x};
    for (const auto& param : layer->params()) leaves.push_back(values_of(*param));
    const auto out = layer->forward({x}, context);
    const bool has_out = out[0].defined();
    const at::Tensor root = has_out ? out[0] : context.last_loss;
    return torch::autograd::grad({root}, leaves, {has_out ? cot : at::ones_like(root)}, false, false, true)[0];
  }
};

using MakeTiled = std::function<std::shared_ptr<Layer>(int64_t tile)>;

// Throws Fault if a gradient of the tiled layer is off by more than rounding: of fp32 sums of up to 8192 terms, and in bf16 of
// the sum's and the gradient's elements.
void check_gradients(const Subject& tiled, const Subject& whole, at::ScalarType dtype) {
  for (size_t i = 0; i < whole.layer->params().size(); ++i) {
    const at::Tensor &got = tiled.context.views.at(tiled.layer->params()[i].get()),
                     &wanted = whole.context.views.at(whole.layer->params()[i].get());
    const double gap = ((got - wanted).norm() / wanted.norm()).item<double>();
    if (!(gap < (dtype == at::kFloat ? 128 * 0x1p-24 : 0x1p-8))) fault("gradient {} with tiles is off by {}", i, gap);
  }
}

void tiles(benchmark::State& state, const MakeTiled& make, at::ScalarType dtype, int64_t tile) {
  Subject tiled(make(tile), dtype), whole(make(0), dtype);
  const at::Tensor x = at::randn({1, kTiledRows, kTiledHidden}).to(dtype).set_requires_grad(true);
  const at::Tensor cot = at::randn({1, kTiledRows, kTiledHidden}).to(dtype);
  tiled.backward(x, cot);
  whole.backward(x, cot);
  check_gradients(tiled, whole, dtype);
  std::clock_t of_tiled = 0, of_whole = 0;
  for (auto _ : state) {
    const std::clock_t start = std::clock();
    benchmark::DoNotOptimize(tiled.backward(x, cot));
    const std::clock_t middle = std::clock();
    benchmark::DoNotOptimize(whole.backward(x, cot));
    of_tiled += middle - start;
    of_whole += std::clock() - middle;
  }
  const double unit = 1e3 / CLOCKS_PER_SEC / static_cast<double>(state.iterations());
  state.counters["tiled_ms"] = static_cast<double>(of_tiled) * unit;
  state.counters["whole_ms"] = static_cast<double>(of_whole) * unit;
  state.counters["ratio"] = static_cast<double>(of_tiled) / static_cast<double>(of_whole);
}

void add_tiles(const std::string& name, const MakeTiled& make) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t tile : {256, 512, 1024}) {
      benchmark::RegisterBenchmark((name + (dtype == at::kFloat ? "/fp32/" : "/bf16/") + std::to_string(tile)).c_str(),
                                   [=](benchmark::State& state) { tiles(state, make, dtype, tile); })
          ->Unit(benchmark::kMillisecond)
          ->Iterations(4);
    }
  }
}

const bool kAddedTiles = [] {
  add_tiles("tile_head", [](int64_t tile) {
    return make_lm_loss(Value::Table{{"vocab", kTiledClasses}, {"hidden", kTiledHidden}, {"tile", tile}});
  });
  for (const std::string activation : {"gelu_tanh", "swiglu"}) {
    add_tiles("tile_mlp_" + activation, [activation](int64_t tile) {
      return make_mlp(Value::Table{{"hidden", kTiledHidden}, {"ffn", kTiledFfn}, {"activation", activation}, {"tile", tile}});
    });
  }
  return true;
}();

}  // namespace
}  // namespace zt::nn
