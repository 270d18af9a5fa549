// Times a step of Muon for one matrix, in turns with the GEMMs of its iteration alone, by the same provider on one thread.
//
//   muon_bench [--rounds N]
//
// Prints medians, and the ratio of the GEMMs' time to the step's.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "providers.h"
#include "tensor/muon.h"
#include "timing.h"
#include "zt/gemm/gemm.h"

namespace zt::optim {
namespace {

constexpr int kSteps = 5;  // iterations of Newton and Schulz

void run_gemms(const at::Tensor& x, const at::Tensor& gram, const at::Tensor& square, const at::Tensor& product) {
  for (int step = 0; step < kSteps; ++step) {
    gemm(GemmKind::forward, x, x.t(), gram);
    gemm(GemmKind::forward, gram, gram, square);
    gemm(GemmKind::forward, gram, x, product);
  }
}

void print_row(int64_t rows, int64_t columns, const std::string& type, int rounds) {
  const auto optimizer = make_muon(Value::Table{{"lr", 1e-3}, {"ns_steps", kSteps}, {"ns_dtype", type}}, best_isa());
  ParamInfo param;
  param.name = "w";
  param.shape = {rows, columns};
  param.is_matrix = true;
  const at::Tensor values = at::randn({rows, columns}), gradient = at::randn({rows, columns});
  const OwnedTensor owned{param, 0, values, {{"momentum_buffer", at::zeros_like(values)}}};
  const at::Tensor x = gradient.to(type == "bf16" ? at::kBFloat16 : at::kFloat) / gradient.norm();
  const at::Tensor gram = at::empty({rows, rows}, x.options());
  const at::Tensor square = at::empty_like(gram), product = at::empty_like(x);
  std::vector<double> step_seconds, gemm_seconds;
  for (int round = 0; round <= rounds; ++round) {
    const double step = seconds_of([&] { optimizer->step_tensor(owned, gradient, {.lr = 1e-3, .step = round + 1}); });
    const double gemms = seconds_of([&] { run_gemms(x, gram, square, product); });
    if (round == 0) continue;  // memory is new
    step_seconds.push_back(step);
    gemm_seconds.push_back(gemms);
  }
  const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
  const double flops = 2.0 * kSteps * m * m * (2 * n + m), gemms = median(gemm_seconds), step = median(step_seconds);
  fmt::print("| {} x {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.2f} |\n", rows, columns, type, 1e3 * step, 1e3 * gemms,
             1e-9 * flops / gemms, gemms / step);
}

int run(int argc, char** argv) {
  int rounds = 7;
  CLI::App app("Times a step of Muon in turns with its GEMMs alone.");
  app.add_option("--rounds", rounds, "timed rounds, after one untimed round")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  register_gemm_providers();
  fmt::print("| matrix | type | step, ms | GEMMs alone | GFLOP/s | GEMMs / step |\n|---|---|---|---|---|---|\n");
  for (const std::string type : {"fp32", "bf16"}) {
    for (const auto& [rows, columns] : {std::pair{256, 1024}, std::pair{512, 512}, std::pair{512, 2048}, std::pair{1024, 4096}})
      print_row(rows, columns, type, rounds);
  }
  return 0;
}

}  // namespace
}  // namespace zt::optim

int main(int argc, char** argv) {
  return zt::optim::run(argc, argv);
}
