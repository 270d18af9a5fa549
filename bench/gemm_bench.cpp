// The gemm providers on the products of a GPT's layers: the trial that training makes, which checks results against fp64 and runs
// the providers in turns.
//
//   gemm_bench [rows hidden ffn vocab]     default 1024 512 2048 8192
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string>

#include "sgemm.h"
#include "zt/error.h"
#include "zt/gemm_choice.h"

namespace zt {
namespace {

struct Linear {
  const char* name;
  int64_t in, out;
};

// Weight gradients are summed in fp32.
std::array<GemmShape, 3> products_of(const Linear& linear, at::ScalarType dtype, int64_t rows) {
  return {GemmShape{GemmKind::forward, dtype, rows, linear.out, linear.in},
          GemmShape{GemmKind::input_gradient, dtype, rows, linear.in, linear.out},
          GemmShape{GemmKind::weight_gradient, dtype, linear.out, linear.in, rows, dtype != at::kFloat}};
}

void run(int64_t rows, int64_t hidden, int64_t ffn, int64_t vocab) {
  const std::array linears{Linear{"qkv", hidden, 3 * hidden}, Linear{"out", hidden, hidden}, Linear{"up", hidden, ffn},
                           Linear{"down", ffn, hidden}, Linear{"head", hidden, vocab}};
  const GemmTrial trial = timed_gemm_trial([](const std::string& line) { fmt::print("  {}\n", line); });
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Linear& linear : linears) {
      fmt::print("{}\n", linear.name);
      for (const GemmShape& shape : products_of(linear, dtype, rows)) choose_gemm({shape}, trial);
    }
  }
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  const auto size = [&](int place, int64_t usual) { return argc > place ? std::atoll(argv[place]) : usual; };
  try {
    fmt::print("oneDNN: {}\n", zt::onednn::register_provider());
  } catch (const zt::Error& error) {
    fmt::print("without oneDNN: {}\n", error.what());
  }
  zt::run(size(1, 1024), size(2, 512), size(3, 2048), size(4, 8192));
}
