// Times the loops that move rows between tokens and experts, in alternation with a copy of the same number of bytes, on one
// thread. A loop's bytes are those of the rows that it has to read and to write, each counted once: its operands and its results,
// without routes and weights. The copy (memcpy) reads half of that number and writes the other half. Compares the results with
// ATen before timing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "exchange/rows.h"
#include "timing.h"
#include "zt/base/error.h"

namespace zt::moe {
namespace {

constexpr int64_t kExperts = 8;

// Rows and routes of one size. Each token has `top_k` different experts.
struct Case {
  Case(int64_t tokens, int64_t hidden, int64_t top_k, at::ScalarType dtype)
      : experts(at::rand({tokens, kExperts}).argsort(int64_t{1}).narrow(1, 0, top_k).contiguous()),
        order(order_rows(experts, kExperts)),
        of_tokens(at::randn({tokens, hidden}).to(dtype)),
        of_rows(at::randn({tokens * top_k, hidden}).to(dtype)),
        weights(at::rand({tokens, top_k})) {}

  at::Tensor experts;
  RowOrder order;
  at::Tensor of_tokens, of_rows;  // values, or gradients
  at::Tensor weights;             // float32 [tokens, top_k]
};

using Results = std::vector<at::Tensor>;

struct Loop {
  const char* name;
  Results (*run)(const Case&);
  Results (*exact)(const Case&);    // in float64, by ATen
  int64_t (*rows)(int64_t routes);  // read and written, per token
};

at::Tensor sums(const Case& c, const at::Tensor& weights) {
  at::Tensor out = at::empty_like(c.of_tokens);
  sum_rows(out, c.of_rows, c.order, weights);
  return out;
}

// Each token's rows, float64 [tokens, routes, hidden].
at::Tensor picked(const Case& c) {
  return c.of_rows.to(at::kDouble).index_select(0, c.order.places.flatten()).unflatten(0, c.experts.sizes());
}
at::Tensor tokens_of_rows(const Case& c) {
  return c.of_tokens.to(at::kDouble).index_select(0, c.order.pairs.div(c.experts.size(1), "floor"));
}
at::Tensor weights_of_rows(const Case& c) {
  return c.weights.to(at::kDouble).flatten().index_select(0, c.order.pairs).unsqueeze(1);
}

const Loop kLoops[] = {
    {"permute", [](const Case& c) -> Results { return {rows_of_tokens(c.of_tokens, c.order)}; },
     [](const Case& c) -> Results { return {tokens_of_rows(c)}; }, [](int64_t routes) { return 1 + routes; }},
    {"permute_backward", [](const Case& c) -> Results { return {sums(c, {})}; },
     [](const Case& c) -> Results { return {picked(c).sum(1)}; }, [](int64_t routes) { return 1 + routes; }},
    {"unpermute", [](const Case& c) -> Results { return {sums(c, c.weights)}; },
     [](const Case& c) -> Results { return {picked(c).mul(c.weights.to(at::kDouble).unsqueeze(2)).sum(1)}; },
     [](int64_t routes) { return 1 + routes; }},
    {"unpermute_backward",
     [](const Case& c) -> Results {
       const SumGradients gradients = sum_rows_backward(c.of_tokens, c.of_rows, c.order, c.weights);
       return {gradients.rows, gradients.weights};
     },
     [](const Case& c) -> Results {
       return {tokens_of_rows(c) * weights_of_rows(c), picked(c).mul(c.of_tokens.to(at::kDouble).unsqueeze(1)).sum(2)};
     },
     [](int64_t routes) { return 1 + 2 * routes; }},
};

// Throws Fault if a result differs from the exact one by more than one rounding of its dtype and those of the sums.
void check(const Results& results, const Results& exact) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = ((results[i].to(at::kDouble) - exact[i]).norm() / exact[i].norm()).item<double>();
    const double bound = results[i].scalar_type() == at::kBFloat16 ? 0x1p-8 : 64 * 0x1p-24;
    if (!(error <= bound)) fault("result {} is off by {}", i, error);
  }
}

// A row shows medians: the loop's and the copy's GB/s, and the ratio of both in one turn.
void in_turns(benchmark::State& state, const Loop& loop, int64_t top_k, at::ScalarType dtype) {
  at::manual_seed(1);
  const int64_t hidden = state.range(0), tokens = state.range(1);
  const Case c(tokens, hidden, top_k, dtype);
  check(loop.run(c), loop.exact(c));
  const int64_t bytes = loop.rows(top_k) * c.of_tokens.numel() * c.of_tokens.itemsize();
  const at::Tensor from = at::zeros({bytes / 2}, at::kByte), to = at::ones({bytes / 2}, at::kByte);
  std::vector<double> ours, copies, ratios;
  for (auto _ : state) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    benchmark::DoNotOptimize(loop.run(c));
    const auto middle = Clock::now();
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), static_cast<size_t>(bytes / 2));
    benchmark::ClobberMemory();
    const auto end = Clock::now();
    ours.push_back(std::chrono::duration<double>(middle - start).count());
    copies.push_back(std::chrono::duration<double>(end - middle).count());
    ratios.push_back(copies.back() / ours.back());
  }
  state.counters["GB/s"] = static_cast<double>(bytes) / median(ours) / 1e9;
  state.counters["copy_GB/s"] = static_cast<double>(bytes) / median(copies) / 1e9;
  state.counters["ratio"] = median(ratios);
}

void add(const Loop& loop, int64_t top_k, at::ScalarType dtype) {
  const std::string name = fmt::format("{}/top{}/{}", loop.name, top_k, dtype == at::kFloat ? "fp32" : "bf16");
  benchmark::RegisterBenchmark(name.c_str(), [=, &loop](benchmark::State& state) { in_turns(state, loop, top_k, dtype); })
      ->ArgNames({"hidden", "tokens"})
      ->ArgsProduct({{512, 2048}, {512, 2048, 8192}})
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.3);
}

}  // namespace
}  // namespace zt::moe

int main(int argc, char** argv) {
  // As in the program ztoolkit: freed memory is used again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  at::set_num_threads(1);
  for (const auto& loop : zt::moe::kLoops) {
    for (const int64_t top_k : {1, 2}) {
      for (const auto dtype : {at::kFloat, at::kBFloat16}) zt::moe::add(loop, top_k, dtype);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
