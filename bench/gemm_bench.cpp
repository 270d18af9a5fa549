// Times the GEMM providers on the matrices of a GPT's layers. Compares each result with fp64, then runs the providers in
// alternation.
//
//   gemm_bench [rows hidden ffn vocab]     default 1024 512 2048 8192
//
// Prints the GFLOP/s of each provider by its median time, and the provider that the default rule chooses.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "providers.h"
#include "timing.h"
#include "zt/base/error.h"
#include "zt/gemm/gemm_choice.h"

namespace zt {
namespace {

constexpr double kSeconds = 0.2;  // per provider and GEMM
constexpr size_t kLeastRuns = 5;

struct Linear {
  const char* name;
  int64_t in, out;
};

// Returns the GEMMs of a linear layer. The weight gradient is summed in fp32.
std::array<GemmShape, 3> shapes_of(const Linear& linear, at::ScalarType dtype, int64_t rows) {
  return {GemmShape{GemmKind::forward, dtype, rows, linear.out, linear.in},
          GemmShape{GemmKind::input_gradient, dtype, rows, linear.in, linear.out},
          GemmShape{GemmKind::weight_gradient, dtype, linear.out, linear.in, rows, dtype != at::kFloat}};
}

// Operands with the memory layout of a layer: x and dy are [rows, columns], W is [out, in]. A weight gradient is added to c.
struct Operands {
  at::Tensor a, b, c;
  double beta;

  explicit Operands(const GemmShape& s) {
    const bool is_weight = s.kind == GemmKind::weight_gradient;
    const auto matrix = [&](int64_t rows, int64_t columns) { return at::randn({rows, columns}).to(s.dtype); };
    a = is_weight ? matrix(s.k, s.m).t() : matrix(s.m, s.k);
    b = s.kind == GemmKind::forward ? matrix(s.n, s.k).t() : matrix(s.k, s.n);
    c = at::zeros({s.m, s.n}, s.widens ? at::kFloat : s.dtype);
    beta = is_weight ? 1 : 0;
  }

  void run(const Gemm& provider) const { provider.run(a, b, c, beta, 1); }

  // Returns whether the result differs from fp64 by at most the error of sums in fp32 and one rounding to c's dtype.
  bool is_right(const Gemm& provider) const {
    c.zero_();
    run(provider);
    const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble), exact = wide_a.mm(wide_b);
    const double unit = c.scalar_type() == at::kHalf ? 0x1p-11 : c.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0x1p-24;
    const at::Tensor bound =
        wide_a.abs().mm(wide_b.abs()) * (2 * static_cast<double>(a.size(1)) * 0x1p-24) + exact.abs() * (2 * unit);
    return (c.to(at::kDouble) - exact).abs().le(bound).all().item<bool>();
  }

  double seconds(const Gemm& provider) const {
    const auto begin = std::chrono::steady_clock::now();
    run(provider);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

void compare(const GemmShape& shape) {
  static constexpr const char* kKinds[] = {"forward", "input_gradient", "weight_gradient"};
  const Operands operands(shape);
  std::vector<std::string> names;
  for (const std::string& name : gemm_providers()) {
    const Gemm& provider = find_gemm(name);
    if (!provider.takes(at::kCPU, shape.dtype)) continue;
    if (operands.is_right(provider)) names.push_back(name);
    else fmt::print("  '{}' gives a wrong result\n", name);
  }
  std::vector<std::vector<double>> times(names.size());
  for (double spent = 0; spent < kSeconds * static_cast<double>(names.size()) || times[0].size() < kLeastRuns;) {
    for (size_t i = 0; i < names.size(); ++i) spent += times[i].emplace_back(operands.seconds(find_gemm(names[i])));
  }
  const GemmGroup group = gemm_group(shape);
  fmt::print("  {:16} {:24} {} x {} x {}:", kKinds[static_cast<size_t>(shape.kind)], name_of(group), shape.m, shape.n, shape.k);
  const double flop = 2e-9 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  for (size_t i = 0; i < names.size(); ++i) fmt::print(" {} {:.3g}", names[i], flop / median(times[i]));
  fmt::print("; rule: {}\n", gemm_choice().at(group));
}

void run(int64_t rows, int64_t hidden, int64_t ffn, int64_t vocab) {
  const at::NoGradGuard no_grad;
  const std::array linears{Linear{"qkv", hidden, 3 * hidden}, Linear{"out", hidden, hidden}, Linear{"up", hidden, ffn},
                           Linear{"down", ffn, hidden}, Linear{"head", hidden, vocab}};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Linear& linear : linears) {
      fmt::print("{}\n", linear.name);
      for (const GemmShape& shape : shapes_of(linear, dtype, rows)) compare(shape);
    }
  }
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  const auto size = [&](int place, int64_t usual) { return argc > place ? std::atoll(argv[place]) : usual; };
  zt::register_gemm_providers();
  zt::run(size(1, 1024), size(2, 512), size(3, 2048), size(4, 8192));
}
