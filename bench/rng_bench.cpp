// Times random numbers by instruction set against a literal implementation of the definition: one element after the other, with
// libm's functions. Both run in alternation and are compared by medians, so the ratio is valid on a busy machine.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "timing.h"
#include "zt/base/error.h"
#include "zt/random/rng.h"

namespace zt {
namespace {

constexpr int kRepeats = 16;         // one turn takes about 1 ms, because processors start vector instructions slowly
constexpr int64_t kCount = 1 << 14;  // elements; they fit in the L2 cache, like the parts in which parameters are initialised

void fill(const Philox& stream, std::span<float> out, Isa isa) {
  stream.uniform(0, 0, out, isa);
}
void fill(const Philox& stream, std::span<double> out, Isa isa) {
  stream.normal(0, 0, out, isa);
}

void fill_literally(const Philox& stream, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 4) {
    const Philox::Block words = stream.block(0, i / 4);
    for (size_t j = 0; j < 4; ++j) out[i + j] = static_cast<float>(words[j] >> 8) * 0x1p-24F;
  }
}
void fill_literally(const Philox& stream, std::span<double> out) {
  const auto part = [](uint32_t high, uint32_t low) { return (static_cast<uint64_t>(high) << 32 | low) >> 11; };
  for (size_t i = 0; i < out.size(); ++i) {
    const Philox::Block words = stream.block(0, i / 2);
    const double radius = std::sqrt(-2 * std::log(static_cast<double>(part(words[1], words[0]) + 1) * 0x1p-53));
    const double angle = 2 * std::numbers::pi * static_cast<double>(part(words[3], words[2])) * 0x1p-53;
    out[i] = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
}

// Throws Fault if the numbers differ. Uniform numbers must be equal. Normal numbers have a radius below 8.6 and may differ by the
// rounding of both, 2 pi + 10 units of 2^-53 each; the angle of up to 2 pi contributes most.
void check(float got, float expected) {
  if (got != expected) fault("a uniform number is {} and should be {}", got, expected);
}
void check(double got, double expected) {
  if (!(std::fabs(got - expected) <= 8.6 * 2 * (2 * std::numbers::pi + 10) * 0x1p-53)) {
    fault("a normal number is {} and should be {}", got, expected);
  }
}

template <class T>
void fill_beside_definition(benchmark::State& state, Isa isa) {
  using Clock = std::chrono::steady_clock;
  const Philox stream(1);
  std::vector<T> ours(kCount), literal(kCount);
  std::vector<double> ours_seconds, literal_seconds;
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (int i = 0; i < kRepeats; ++i) fill(stream, ours, isa);
    const auto middle = Clock::now();
    for (int i = 0; i < kRepeats; ++i) fill_literally(stream, literal);
    literal_seconds.push_back(std::chrono::duration<double>(Clock::now() - middle).count());
    ours_seconds.push_back(std::chrono::duration<double>(middle - begin).count());
    state.SetIterationTime(ours_seconds.back());
  }
  for (int64_t i = 0; i < kCount; ++i) check(ours[i], literal[i]);
  const double time = median(ours_seconds), literal_time = median(literal_seconds);
  state.counters["ns/element"] = time * 1e9 / (kRepeats * kCount);
  state.counters["definition"] = literal_time * 1e9 / (kRepeats * kCount);
  state.counters["ratio"] = literal_time / time;
}

void register_all() {
  for (const Isa isa : supported_isas()) {
    benchmark::RegisterBenchmark((std::string("normal/") + isa_name(isa)).c_str(), fill_beside_definition<double>, isa)
        ->UseManualTime();
    benchmark::RegisterBenchmark((std::string("uniform/") + isa_name(isa)).c_str(), fill_beside_definition<float>, isa)
        ->UseManualTime();
  }
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  zt::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
