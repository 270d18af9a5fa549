// Optimizers against the memory's bandwidth and against PyTorch's fused AdamW.
//
//   optim_bench [--parameters N] [--rounds N] [Google Benchmark's flags]
//
// The summary alternates three loops over N parameters on one thread: AdamW of this module, at::_fused_adamw_, and a loop that
// only moves as many bytes (reads 4 floats a parameter, writes 3). Medians over the rounds; results are compared at the end.
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>

#include "adam.h"
#include "lion.h"
#include "sgd.h"
#include "zt/norm.h"

namespace zt::optim {
namespace {

constexpr int kAdamWBytes = 28;  // reads p, g, m, v; writes p, m, v
constexpr double kLr = 1e-3, kDecay = 0.1;

// Parameters, gradient and two averages.
struct Buffers {
  explicit Buffers(int64_t count) : p(at::ones({count})), g(at::ones({count})), m(at::zeros({count})), v(at::zeros({count})) {
    auto generator = at::detail::createCPUGenerator(1);
    g.normal_(0, 1, generator);
    p.normal_(0, 1, generator);
  }
  at::Tensor p, g, m, v;
};

double seconds_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// As many bytes as AdamW, fetched as far ahead, and next to no arithmetic.
[[gnu::always_inline]] inline void move_bytes(const Buffers& b) {
  float* __restrict p = b.p.data_ptr<float>();
  float* __restrict m = b.m.data_ptr<float>();
  float* __restrict v = b.v.data_ptr<float>();
  const float* __restrict g = b.g.const_data_ptr<float>();
  constexpr int kWidth = 16;
  typedef float Floats __attribute__((vector_size(kWidth * sizeof(float))));
  const int64_t count = b.p.numel() / kWidth * kWidth;
  for (int64_t i = 0; i < count; i += kWidth) {
    constexpr int64_t kAhead = 512;
    if (i + kAhead < count) {
      for (const float* array : {static_cast<const float*>(p), static_cast<const float*>(m), static_cast<const float*>(v), g}) {
        __builtin_prefetch(array + i + kAhead);
      }
    }
    Floats x, y, z, w;
    std::memcpy(&x, p + i, sizeof(x));
    std::memcpy(&y, m + i, sizeof(y));
    std::memcpy(&z, v + i, sizeof(z));
    std::memcpy(&w, g + i, sizeof(w));
    x += w;
    y += w;
    z += w;
    std::memcpy(p + i, &x, sizeof(x));
    std::memcpy(m + i, &y, sizeof(y));
    std::memcpy(v + i, &z, sizeof(z));
  }
}
void move_bytes_plain(const Buffers& b) {
  move_bytes(b);
}
ZT_TARGET_AVX2 void move_bytes_avx2(const Buffers& b) {
  move_bytes(b);
}
ZT_TARGET_AVX512 void move_bytes_avx512(const Buffers& b) {
  move_bytes(b);
}

void move_bytes_best(const Buffers& b) {
  switch (best_isa()) {
    case Isa::plain:
      return move_bytes_plain(b);
    case Isa::avx2:
      return move_bytes_avx2(b);
    case Isa::avx512:
      return move_bytes_avx512(b);
  }
}

void step_ours(const Optimizer& optimizer, const Buffers& b, int64_t step) {
  FlatState state{b.p, {{"exp_avg", b.m}, {"exp_avg_sq", b.v}}};
  const Segment all{0, 0, 0, b.p.numel()};
  optimizer.step(state, b.g, {&all, 1}, {.lr = kLr, .step = step});
}

void step_fused(const Buffers& b, at::Tensor& step) {
  step += 1;
  at::_fused_adamw_({b.p}, {b.g}, {b.m}, {b.v}, {}, {step}, kLr, 0.9, 0.999, kDecay, 1e-8, false, false);
}

// Both have done `rounds` updates from one start. Each rounds the parameter a few times an update, and its averages relative
// to the largest gradient, which is at most 32 = 1 / sqrt(1 - beta2) denominators: see tests/optim/golden_test.cpp.
bool agree(const Buffers& ours, const Buffers& fused, int rounds) {
  const double u = 0x1p-24;
  const at::Tensor limit = (fused.p.abs() + kLr * rounds) * (16.0 * rounds * u) + 2 * kLr * 32 * 4 * rounds * rounds * u;
  return ((ours.p - fused.p).abs() <= limit).all().item<bool>();
}

bool print_summary(int64_t count, int rounds) {
  const auto optimizer = make_adamw(Value::Table{{"lr", kLr}, {"weight_decay", kDecay}});
  const Buffers ours(count), fused(count), moved(count);
  at::Tensor fused_step = at::zeros({}, at::kFloat);
  std::vector<double> ours_seconds, fused_seconds, moved_seconds;
  for (int round = 1; round <= rounds; ++round) {
    ours_seconds.push_back(seconds_of([&] { step_ours(*optimizer, ours, round); }));
    fused_seconds.push_back(seconds_of([&] { step_fused(fused, fused_step); }));
    moved_seconds.push_back(seconds_of([&] { move_bytes_best(moved); }));
  }
  const bool equal = agree(ours, fused, rounds);
  const auto line = [&](const char* name, const std::vector<double>& seconds) {
    const double each = median(seconds) / static_cast<double>(count);
    std::cout << fmt::format("{:<22} {:6.3f} Gparameters/s  {:6.2f} GB/s\n", name, 1e-9 / each, 1e-9 * kAdamWBytes / each);
  };
  std::cout << fmt::format("AdamW, {} fp32 parameters, one thread, {}, {} B a parameter, medians of {}\n", count,
                           isa_name(best_isa()), kAdamWBytes, rounds);
  line("zt adamw", ours_seconds);
  line("at::_fused_adamw_", fused_seconds);
  line("read 4, write 3", moved_seconds);
  std::cout << fmt::format("zt adamw: {:.3f} of the bandwidth, {:.3f} times at::_fused_adamw_; results {}\n",
                           median(moved_seconds) / median(ours_seconds), median(fused_seconds) / median(ours_seconds),
                           equal ? "agree" : "DIFFER");
  return equal;
}

template <std::shared_ptr<Optimizer> (*make)(const Value&, Isa)>
void one_step(benchmark::State& state) {
  const Buffers buffers(state.range(0));
  const auto isa = static_cast<Isa>(state.range(1));
  if (const auto isas = supported_isas(); std::find(isas.begin(), isas.end(), isa) == isas.end()) {
    state.SkipWithError("not supported by this processor");
    return;
  }
  const auto optimizer = make(Value::Table{{"lr", kLr}}, isa);
  FlatState shard{buffers.p, {}};
  for (const std::string& name : optimizer->state_names()) shard.state[name] = at::zeros_like(buffers.p);
  const Segment all{0, 0, 0, buffers.p.numel()};
  int64_t step = 0;
  for (auto unused : state) optimizer->step(shard, buffers.g, {&all, 1}, {.lr = kLr, .step = ++step});
  const auto arrays = static_cast<int64_t>(3 + 2 * shard.state.size());  // the parameter and states both ways, the gradient in
  state.SetBytesProcessed(state.iterations() * state.range(0) * arrays * 4);
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetLabel(isa_name(isa));
}

void norm(benchmark::State& state) {
  const Buffers buffers(state.range(0));
  for (auto unused : state) {
    ExactSum sum;
    add_squares(buffers.g, 0, buffers.g.numel(), sum);
    benchmark::DoNotOptimize(sum.value());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

const std::vector<std::vector<int64_t>> kCases{{1 << 12, 1 << 24}, {0, 1, 2}};
BENCHMARK(one_step<make_adamw>)->Name("adamw")->ArgsProduct(kCases);
BENCHMARK(one_step<make_adam>)->Name("adam")->ArgsProduct(kCases);
BENCHMARK(one_step<make_sgd>)->Name("sgd")->ArgsProduct(kCases);
BENCHMARK(one_step<make_lion>)->Name("lion")->ArgsProduct(kCases);
BENCHMARK(norm)->Arg(1 << 12)->Arg(1 << 24);

// Takes "--name value" out of the command line.
int64_t take_flag(int& argc, char** argv, const std::string& name, int64_t value) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] != name) continue;
    value = std::stoll(argv[i + 1]);
    std::rotate(argv + i, argv + i + 2, argv + argc);
    argc -= 2;
    break;
  }
  return value;
}

}  // namespace
}  // namespace zt::optim

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int64_t parameters = zt::optim::take_flag(argc, argv, "--parameters", 50'000'000);
  const int64_t rounds = zt::optim::take_flag(argc, argv, "--rounds", 15);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return zt::optim::print_summary(parameters, static_cast<int>(rounds)) ? 0 : 1;
}
