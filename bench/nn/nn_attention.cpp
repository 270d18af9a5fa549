// Times causal attention, forward and backward, with 8 heads and at least 1024 tokens per call: our kernel, ATen's flash kernel
// and the plain formula in ATen, whose whole matrices of scores are too large for the longest samples. All start from the joined
// queries, keys and values and end with the joined gradient.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <cmath>
#include <limits>

#include "attention/attention_tiled.h"
#include "zt/base/error.h"

namespace zt::nn {
namespace {

constexpr int64_t kHeads = 8, kPlaces = 1024, kLongest = 8192;

struct Setup {
  int64_t head_dim, seq, samples;
  AttentionInputs inputs;
  at::Tensor qkv, dout;

  Setup(at::ScalarType dtype, int64_t dim, int64_t places)
      : head_dim(dim), seq(places), samples(std::max<int64_t>(1, kPlaces / places)) {
    inputs.shape = {kHeads, kHeads, dim};
    qkv = at::randn({samples, seq, inputs.shape.columns()}).to(dtype);
    dout = at::randn({samples, seq, kHeads * dim}).to(dtype);
  }

  struct Result {
    at::Tensor out, dqkv;
  };
  Result ours() const {
    Result result{at::empty_like(dout), at::empty_like(qkv)};
    const at::Tensor logsumexp = at::empty({samples, kHeads, seq}, at::kFloat);
    const AttentionTokens tokens = whole_tokens(seq, {});
    const AttentionViews in = views_of(qkv, inputs.shape);
    attention_forward(result.out, logsumexp, in, tokens, inputs);
    attention_backward(views_of(result.dqkv, inputs.shape), GradientSum::write, dout, in, result.out, logsumexp, tokens, inputs);
    return result;
  }

  at::Tensor heads(const at::Tensor& joined, int64_t part) const {
    const int64_t columns = kHeads * head_dim;
    return joined.narrow(2, part * columns, columns).view({samples, seq, kHeads, head_dim}).transpose(1, 2);
  }
  Result joined(const at::Tensor& out, const std::array<at::Tensor, 3>& grads) const {
    Result result{out.transpose(1, 2).reshape(dout.sizes()), at::empty_like(qkv)};
    for (int64_t part = 0; part < 3; ++part) heads(result.dqkv, part).copy_(grads[part]);
    return result;
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }

  Result flash() const {
    const at::Tensor q = heads(qkv, 0), k = heads(qkv, 1), v = heads(qkv, 2);
    const auto [out, rest] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, true, {}, scale());
    const auto [dq, dk, dv] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(heads(dout, 0), q, k, v, out, rest, 0, true, {}, scale());
    return joined(out, {dq, dk, dv});
  }
  Result plain() const {
    const at::Tensor q = heads(qkv, 0), k = heads(qkv, 1), v = heads(qkv, 2), grad = heads(dout, 0);
    const at::Tensor later = at::full({seq, seq}, -std::numeric_limits<double>::infinity(), qkv.options()).triu(1);
    const at::Tensor weights = q.matmul(k.transpose(2, 3)).mul_(scale()).add_(later).softmax(-1);
    const at::Tensor dscores =
        at::_softmax_backward_data(grad.matmul(v.transpose(2, 3)), weights, -1, weights.scalar_type()).mul_(scale());
    return joined(weights.matmul(v),
                  {dscores.matmul(k), dscores.transpose(2, 3).matmul(q), weights.transpose(2, 3).matmul(grad)});
  }

  // Throws Fault if our result differs from the others by more than rounding. The plain formula rounds about five stored tensors
  // on the way to a gradient, each by at most half an eps. The float32 sums add about sqrt(terms) roundings.
  void check() const {
    const double eps = qkv.scalar_type() == at::kFloat ? 0x1p-23 : qkv.scalar_type() == at::kHalf ? 0x1p-10 : 0x1p-7;
    const double bound = 5 * eps / 2 + std::sqrt(static_cast<double>(seq + head_dim)) * 0x1p-23;
    const Result mine = ours();
    std::vector<Result> others{flash()};
    if (seq < kLongest) others.push_back(plain());
    for (const Result& other : others) {
      const auto gap = [](const at::Tensor& a, const at::Tensor& b) {
        return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
      };
      const double out = gap(mine.out, other.out), grad = gap(mine.dqkv, other.dqkv);
      if (!(out < bound && grad < bound)) fault("attention differs from ATen's by {} and its gradient by {}", out, grad);
    }
  }
};

void attention(benchmark::State& state, at::ScalarType dtype, Setup::Result (Setup::*form)() const) {
  const Setup setup(dtype, state.range(0), state.range(1));
  setup.check();
  for (auto _ : state) benchmark::DoNotOptimize((setup.*form)());
}

void lengths(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"D", "T"})->ArgsProduct({{64, 128}, {64, 128, 256, 512, 1024, 2048}})->Unit(benchmark::kMillisecond);
}
void all_lengths(benchmark::internal::Benchmark* benchmark) {
  lengths(benchmark);
  benchmark->Args({64, kLongest});
}

BENCHMARK_CAPTURE(attention, fp32_ours, at::kFloat, &Setup::ours)->Apply(all_lengths);
BENCHMARK_CAPTURE(attention, fp32_flash, at::kFloat, &Setup::flash)->Apply(all_lengths);
BENCHMARK_CAPTURE(attention, fp32_plain, at::kFloat, &Setup::plain)->Apply(lengths);
BENCHMARK_CAPTURE(attention, bf16_ours, at::kBFloat16, &Setup::ours)->Apply(lengths);
BENCHMARK_CAPTURE(attention, bf16_flash, at::kBFloat16, &Setup::flash)->Apply(lengths);
BENCHMARK_CAPTURE(attention, bf16_plain, at::kBFloat16, &Setup::plain)->Apply(lengths);

}  // namespace
}  // namespace zt::nn
