// Times the GEMMs of packed matrices.
//
//   gemm_packed_bench [threads [isa]]      default: all threads, all instruction sets
//
// One row: prints which share of the rate at which a plain sum reads the same bytes the GEMM reaches. The matrices of a set
// exceed the last cache together, and each is used once per pass. Many rows: prints GFLOP/s beside the provider "dots" on the
// plain matrix. All numbers of a line come from runs that alternate.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "dots.h"
#include "packed/packed_kernels.h"
#include "processor.h"
#include "timing.h"
#include "zt/base/isa.h"

namespace zt {
namespace {

constexpr int64_t kSetBytes = int64_t{256} << 20;
constexpr int kPasses = 9;

struct BenchFormat {
  const char* name;
  PackSpec spec;
  Activations activations = Activations::floating;
};

// Other work on the machine only adds time, so the least one is compared.
double least(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

std::vector<BenchFormat> bench_formats() {
  return {{"panels fp32", {PackFormat::panels, 64, false, at::kFloat}},
          {"panels bf16", {PackFormat::panels, 64, false, at::kBFloat16}},
          {"int8", {PackFormat::int8}},
          {"int8 x int8", {PackFormat::int8}, Activations::int8},
          {"int4", {PackFormat::int4}},
          {"int4 symmetric", {PackFormat::int4, 64, true}},
          {"int4 x int8", {PackFormat::int4}, Activations::int8},
          {"nf4", {PackFormat::nf4}}};
}

// Reads all bytes in parallel.
uint64_t sum_of_words(const at::Tensor& bytes) {
  std::atomic<uint64_t> sum = 0;
  const auto* const words = reinterpret_cast<const uint64_t*>(bytes.const_data_ptr<uint8_t>());
  at::parallel_for(0, bytes.numel() / 64, 1 << 12, [&](int64_t begin, int64_t end) {
    uint64_t sums[8] = {};
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < 8; ++j) sums[j] += words[8 * i + j];
    }
    for (const uint64_t each : sums) sum += each;
  });
  return sum;
}

PackedMatrix random_packed(const PackedKernels& kernels, const PackSpec& spec, int64_t rows, int64_t columns) {
  PackedMatrix matrix{spec, rows, columns, at::empty({kernels.bytes(spec, rows, columns)}, at::kByte)};
  kernels.pack(at::randn({rows, columns}), matrix);
  return matrix;
}

void time_one_row(const PackedKernels& kernels, int64_t rows, int64_t columns, at::ScalarType dtype) {
  fmt::print("1 x {} x {}, {}: share of the rate of a plain sum (GB/s)\n", rows, columns, c10::toString(dtype));
  for (const BenchFormat& format : bench_formats()) {
    std::vector<PackedMatrix> set{random_packed(kernels, format.spec, rows, columns)};
    while (static_cast<int64_t>(set.size()) * set[0].bytes.numel() < kSetBytes) {
      set.push_back(set[0]);
      set.back().bytes = set[0].bytes.clone();
    }
    const at::Tensor x = at::randn({1, columns}).to(dtype), out = at::empty({1, rows}, dtype);
    std::vector<double> reads, products;
    volatile uint64_t sum = 0;  // so that no read is left out
    for (int pass = 0; pass < kPasses; ++pass) {
      for (const PackedMatrix& each : set) reads.push_back(seconds_of([&] { sum = sum + sum_of_words(each.bytes); }));
      for (const PackedMatrix& each : set)
        products.push_back(seconds_of([&] { kernels.multiply(x, each, out, format.activations, {}); }));
    }
    const double bytes = static_cast<double>(set[0].bytes.numel()) * 1e-9;
    fmt::print("  {:16} {:.2f} of {:.1f}\n", format.name, least(reads) / least(products), bytes / least(reads));
  }
}

void time_many_rows(const PackedKernels& kernels, int64_t m, int64_t rows, int64_t columns, at::ScalarType dtype) {
  fmt::print("{} x {} x {}, {}: GFLOP/s, and how many times as fast as dots\n", m, rows, columns, c10::toString(dtype));
  const at::Tensor plain = at::randn({rows, columns}).to(dtype), x = at::randn({m, columns}).to(dtype);
  const at::Tensor out = at::empty({m, rows}, dtype), dx = at::empty({m, columns}, dtype);
  const at::Tensor dy = at::randn({m, rows}).to(dtype);
  const auto dots = make_dots_gemm(best_isa(), find_processor().has_bf16);
  const double flop = 2e-9 * static_cast<double>(m) * static_cast<double>(rows) * static_cast<double>(columns);
  for (const BenchFormat& format : bench_formats()) {
    const PackedMatrix w = random_packed(kernels, format.spec, rows, columns);
    std::vector<double> of_dots, products, transposed;
    for (int pass = 0; pass < kPasses; ++pass) {
      of_dots.push_back(seconds_of([&] { dots->run(x, plain.t(), out, 0, 1); }));
      products.push_back(seconds_of([&] { kernels.multiply(x, w, out, format.activations, {}); }));
      transposed.push_back(seconds_of([&] { kernels.multiply_transposed(dy, w, dx); }));
    }
    fmt::print("  {:16} {:5.0f} {:.2f}   dots {:5.0f}   transposed {:5.0f}\n", format.name, flop / least(products),
               least(of_dots) / least(products), flop / least(of_dots), flop / least(transposed));
  }
}

void run(int threads, const std::string& only) {
  const at::NoGradGuard no_grad;
  if (threads > 0) at::set_num_threads(threads);
  for (const Isa isa : supported_isas()) {
    if (only.empty() ? isa == Isa::plain : only != isa_name(isa)) continue;
    const auto kernels = make_packed_kernels(isa, find_processor().has_vnni, find_processor().has_bf16);
    fmt::print("{}, {} threads\n", isa_name(isa), at::get_num_threads());
    time_one_row(*kernels, 2048, 5632, at::kBFloat16);
    time_one_row(*kernels, 32000, 2048, at::kBFloat16);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t m : {4, 16, 64, 512}) time_many_rows(*kernels, m, 2048, 5632, dtype);
    }
  }
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  zt::run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? argv[2] : "");
}
