// Times the optimizers against the memory bandwidth and against PyTorch's fused AdamW.
//
//   optim_bench [--parameters N] [--rounds N] [Google Benchmark's flags]
//
// The summary alternates three loops over N fp32 parameters on one thread: AdamW of zt.optim, a rival, and a loop that only moves
// as many bytes. In the first table the rival is at::_fused_adamw_. In the others the gradient is bf16 or the step writes a bf16
// copy of the parameters; their rival does the same in separate passes: widen, step, round. Prints medians over the rounds, and
// compares the results at the end.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include "flat/adam.h"
#include "flat/lion.h"
#include "flat/sgd.h"
#include "timing.h"
#include "zt/execute/gradient_norm.h"

namespace zt::optim {
namespace {

constexpr int kAdamWBytes = 24;  // per parameter: p, m and v, read and written; without the gradient and the copy
constexpr double kLr = 1e-3, kDecay = 0.1;

// The types of the arrays other than the fp32 parameters and averages.
struct Formats {
  at::ScalarType grad = at::kFloat;
  bool has_copy = false;  // a bf16 copy of the parameters

  int bytes() const { return kAdamWBytes + (grad == at::kFloat ? 4 : 2) + (has_copy ? 2 : 0); }
};

// Parameters, gradient, two averages and the copy.
struct Buffers {
  explicit Buffers(int64_t count, Formats formats = {})
      : p(at::ones({count})), g(at::ones({count}, formats.grad)), m(at::zeros({count})), v(at::zeros({count})) {
    auto generator = at::detail::createCPUGenerator(1);
    g.normal_(0, 1, generator);
    p.normal_(0, 1, generator);
    if (formats.has_copy) copy = at::zeros({count}, at::kBFloat16);
  }
  at::Tensor p, g, m, v, copy;
};

// Reads and writes as many bytes as AdamW with the same prefetch distance, and with almost no arithmetic.
template <class Grad, bool kCopy>
[[gnu::always_inline]] inline void move_bytes(const Buffers& b) {
  constexpr int kWidth = 16;
  constexpr int64_t kAhead = 512;
  typedef float Floats __attribute__((vector_size(kWidth * sizeof(float))));
  float* __restrict p = b.p.data_ptr<float>();
  float* __restrict m = b.m.data_ptr<float>();
  float* __restrict v = b.v.data_ptr<float>();
  const Grad* __restrict g = b.g.const_data_ptr<Grad>();
  c10::BFloat16* __restrict copy = kCopy ? b.copy.data_ptr<c10::BFloat16>() : nullptr;
  const int64_t count = b.p.numel() / kWidth * kWidth;
  for (int64_t i = 0; i < count; i += kWidth) {
    if (i + kAhead < count) {
      for (const float* array : {static_cast<const float*>(p), static_cast<const float*>(m), static_cast<const float*>(v)})
        __builtin_prefetch(array + i + kAhead);
      __builtin_prefetch(g + i + kAhead);
      if constexpr (kCopy) __builtin_prefetch(copy + i + kAhead);
    }
    Floats x, y, z, w = {};
    std::memcpy(&x, p + i, sizeof(x));
    std::memcpy(&y, m + i, sizeof(y));
    std::memcpy(&z, v + i, sizeof(z));
    std::memcpy(&w, g + i, kWidth * sizeof(Grad));
    x += w;
    y += w;
    z += w;
    std::memcpy(p + i, &x, sizeof(x));
    std::memcpy(m + i, &y, sizeof(y));
    std::memcpy(v + i, &z, sizeof(z));
    if constexpr (kCopy) std::memcpy(copy + i, &x, kWidth * sizeof(c10::BFloat16));
  }
}
template <class Grad, bool kCopy>
void move_bytes_plain(const Buffers& b) {
  move_bytes<Grad, kCopy>(b);
}
template <class Grad, bool kCopy>
ZT_TARGET_AVX2 void move_bytes_avx2(const Buffers& b) {
  move_bytes<Grad, kCopy>(b);
}
template <class Grad, bool kCopy>
ZT_TARGET_AVX512 void move_bytes_avx512(const Buffers& b) {
  move_bytes<Grad, kCopy>(b);
}

template <class Grad, bool kCopy>
void move_bytes_best(const Buffers& b) {
  switch (best_isa()) {
    case Isa::plain:
      return move_bytes_plain<Grad, kCopy>(b);
    case Isa::avx2:
      return move_bytes_avx2<Grad, kCopy>(b);
    case Isa::avx512:
      return move_bytes_avx512<Grad, kCopy>(b);
  }
}

void move_as(Formats formats, const Buffers& b) {
  if (formats.grad != at::kFloat) move_bytes_best<c10::BFloat16, true>(b);
  else if (formats.has_copy) move_bytes_best<float, true>(b);
  else move_bytes_best<float, false>(b);
}

void step_ours(const Optimizer& optimizer, const Buffers& b, int64_t step) {
  FlatState state{b.p, {{"exp_avg", b.m}, {"exp_avg_sq", b.v}}, b.copy};
  const Segment all{0, 0, 0, b.p.numel()};
  optimizer.step(state, b.g, {&all, 1}, {.lr = kLr, .step = step});
}

// Does the same as step_ours, with one pass over memory per conversion.
void step_in_passes(const Optimizer& optimizer, const Buffers& b, const at::Tensor& wide, int64_t step) {
  if (wide.defined()) wide.copy_(b.g);
  FlatState state{b.p, {{"exp_avg", b.m}, {"exp_avg_sq", b.v}}};
  const Segment all{0, 0, 0, b.p.numel()};
  optimizer.step(state, wide.defined() ? wide : b.g, {&all, 1}, {.lr = kLr, .step = step});
  b.copy.copy_(b.p);
}

void step_fused(const Buffers& b, at::Tensor& step) {
  step += 1;
  at::_fused_adamw_({b.p}, {b.g}, {b.m}, {b.v}, {}, {step}, kLr, 0.9, 0.999, kDecay, 1e-8, false, false);
}

// Returns whether the parameters agree up to rounding after `rounds` updates from one start. Each side rounds the parameter a few
// times per update, and its averages relative to the largest gradient, which is at most 32 = 1 / sqrt(1 - beta2) denominators:
// see tests/optim/golden_test.cpp.
bool agree(const Buffers& ours, const Buffers& fused, int rounds) {
  const double u = 0x1p-24;
  const at::Tensor limit = (fused.p.abs() + kLr * rounds) * (16.0 * rounds * u) + 2 * kLr * 32 * 4 * rounds * rounds * u;
  return ((ours.p - fused.p).abs() <= limit).all().item<bool>();
}

// The other side of a table: its name, its step, and a function that returns whether both results agree after all rounds.
struct Rival {
  std::string name;
  std::function<void(const Buffers&, int64_t)> step;
  std::function<bool(const Buffers& ours, const Buffers& theirs)> agrees;
};

bool print_table(const Optimizer& optimizer, const std::string& title, Formats formats, int64_t count, int rounds,
                 const Rival& rival) {
  const Buffers ours(count, formats), theirs(count, formats), moved(count, formats);
  std::vector<double> ours_seconds, their_seconds, moved_seconds;
  for (int round = 1; round <= rounds; ++round) {
    ours_seconds.push_back(seconds_of([&] { step_ours(optimizer, ours, round); }));
    their_seconds.push_back(seconds_of([&] { rival.step(theirs, round); }));
    moved_seconds.push_back(seconds_of([&] { move_as(formats, moved); }));
  }
  const auto line = [&](const std::string& name, const std::vector<double>& seconds) {
    const double each = median(seconds) / static_cast<double>(count);
    std::cout << fmt::format("{:<22} {:6.3f} Gparameters/s  {:6.2f} GB/s\n", name, 1e-9 / each, 1e-9 * formats.bytes() / each);
  };
  std::cout << fmt::format("AdamW, {}, {} fp32 parameters, one thread, {}, {} B per parameter, medians of {}\n", title, count,
                           isa_name(best_isa()), formats.bytes(), rounds);
  line("zt adamw", ours_seconds);
  line(rival.name, their_seconds);
  line("moving as many bytes", moved_seconds);
  const bool agree = rival.agrees(ours, theirs);
  std::cout << fmt::format("zt adamw: {:.3f} of the bandwidth, {:.3f} times {}; results {}\n",
                           median(moved_seconds) / median(ours_seconds), median(their_seconds) / median(ours_seconds), rival.name,
                           agree ? "agree" : "DIFFER");
  return agree;
}

bool print_summary(int64_t count, int rounds) {
  const auto optimizer = make_adamw(Value::Table{{"lr", kLr}, {"weight_decay", kDecay}});
  at::Tensor fused_step = at::zeros({}, at::kFloat);
  const Rival fused{"at::_fused_adamw_", [&](const Buffers& b, int64_t) { step_fused(b, fused_step); },
                    [&](const Buffers& ours, const Buffers& theirs) { return agree(ours, theirs, rounds); }};
  const auto in_passes = [&](const at::Tensor& wide) {
    return Rival{"in passes", [&, wide](const Buffers& b, int64_t step) { step_in_passes(*optimizer, b, wide, step); },
                 [](const Buffers& a, const Buffers& b) { return at::equal(a.p, b.p) && at::equal(a.copy, b.copy); }};
  };
  bool all = print_table(*optimizer, "fp32 gradient", {}, count, rounds, fused);
  all &= print_table(*optimizer, "fp32 gradient, bf16 copy", {.has_copy = true}, count, rounds, in_passes({}));
  all &= print_table(*optimizer, "bf16 gradient, bf16 copy", {.grad = at::kBFloat16, .has_copy = true}, count, rounds,
                     in_passes(at::empty({count})));
  return all;
}

template <std::shared_ptr<Optimizer> (*make)(const Value&, Isa), at::ScalarType kGrad = at::kFloat, bool kCopy = false>
void one_step(benchmark::State& state) {
  const Buffers buffers(state.range(0), {kGrad, kCopy});
  const auto isa = static_cast<Isa>(state.range(1));
  if (const auto isas = supported_isas(); std::find(isas.begin(), isas.end(), isa) == isas.end()) {
    state.SkipWithError("not supported by this processor");
    return;
  }
  const auto optimizer = make(Value::Table{{"lr", kLr}}, isa);
  FlatState shard{buffers.p, {}, buffers.copy};
  for (const std::string& name : optimizer->state_names()) shard.state[name] = at::zeros_like(buffers.p);
  const Segment all{0, 0, 0, buffers.p.numel()};
  int64_t step = 0;
  for (auto unused : state) optimizer->step(shard, buffers.g, {&all, 1}, {.lr = kLr, .step = ++step});
  // Bytes per parameter: parameter and states are read and written, the gradient is read, the copy is written.
  const auto bytes = static_cast<int64_t>(8 + 8 * shard.state.size() + buffers.g.element_size() + (kCopy ? 2 : 0));
  state.SetBytesProcessed(state.iterations() * state.range(0) * bytes);
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetLabel(isa_name(isa));
}

template <at::ScalarType kGrad>
void norm(benchmark::State& state) {
  const Buffers buffers(state.range(0), {.grad = kGrad});
  for (auto unused : state) {
    ExactSum sum;
    add_squares(buffers.g, 0, buffers.g.numel(), sum);
    benchmark::DoNotOptimize(sum.value());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(buffers.g.nbytes()));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

const std::vector<std::vector<int64_t>> kCases{{1 << 12, 1 << 24}, {0, 1, 2}};
BENCHMARK(one_step<make_adamw>)->Name("adamw")->ArgsProduct(kCases);
BENCHMARK(one_step<make_adamw, at::kFloat, true>)->Name("adamw, bf16 copy")->ArgsProduct(kCases);
BENCHMARK(one_step<make_adamw, at::kBFloat16, true>)->Name("adamw, bf16 gradient and copy")->ArgsProduct(kCases);
BENCHMARK(one_step<make_adam>)->Name("adam")->ArgsProduct(kCases);
BENCHMARK(one_step<make_sgd>)->Name("sgd")->ArgsProduct(kCases);
BENCHMARK(one_step<make_lion>)->Name("lion")->ArgsProduct(kCases);
BENCHMARK(norm<at::kFloat>)->Name("norm")->Arg(1 << 12)->Arg(1 << 24);
BENCHMARK(norm<at::kBFloat16>)->Name("norm, bf16")->Arg(1 << 12)->Arg(1 << 24);
BENCHMARK(norm<at::kHalf>)->Name("norm, fp16")->Arg(1 << 12)->Arg(1 << 24);

// Removes "--name value" from the command line. Returns the value given there, or `value` if there is none.
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
