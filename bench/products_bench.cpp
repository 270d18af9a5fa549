// Times only the GEMMs of a GPT's training step. train_vs_products.py compares a step's time with them.
//
//   products_bench float32|bfloat16 LAYERS HIDDEN HEADS VOCAB SEQ SAMPLES SECONDS [PARTS]
//
// With PARTS, matrices, heads and vocabulary are cut into so many parts, as by tensor parallelism, and the GEMMs are those of one
// rank. Without heads, HEADS = 0, it leaves out attention.
//
// Each layer has its own weights, inputs and gradients, and the GEMMs run in a step's order, so the cache holds the same data as
// in a step. After an untimed pass it repeats for SECONDS and prints JSON {"linear": [...], "attention": [...]}, the seconds of
// each pass. "linear": the linear layers and the head, by zt::gemm. "attention": whole [SEQ, SEQ] matrices in fp32, by at::bmm:
// scores, their mixture of values, and the gradients of scores, values, queries and keys.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "providers.h"
#include "timing.h"
#include "zt/gemm/gemm.h"

namespace zt {
namespace {

// Computes y = x W^T, dx = dy W, dW = dy^T x. The weight gradient is fp32 and is overwritten, as in the first micro-batch of a
// step.
struct Linear {
  at::Tensor x, weight, y, dy, dx, weight_gradient;

  Linear(int64_t rows, int64_t in, int64_t out, at::ScalarType dtype) {
    const auto matrix = [&](int64_t m, int64_t n) { return at::randn({m, n}).to(dtype); };
    x = matrix(rows, in);
    weight = matrix(out, in);
    y = matrix(rows, out);
    dy = matrix(rows, out);
    dx = matrix(rows, in);
    weight_gradient = at::zeros({out, in});
  }
  void forward() const { gemm(GemmKind::forward, x, weight.t(), y); }
  void backward() const {
    gemm(GemmKind::input_gradient, dy, weight, dx);
    gemm(GemmKind::weight_gradient, dy.t(), x, weight_gradient);
  }
};

// The matrices of one layer's attention: batches of [seq, width of a head].
struct Attention {
  at::Tensor queries, keys, values, scores, mixed;

  Attention(int64_t batches, int64_t seq, int64_t width) {
    queries = at::randn({batches, seq, width});
    keys = at::randn({batches, seq, width});
    values = at::randn({batches, seq, width});
    mixed = at::zeros({batches, seq, width});
    scores = at::zeros({batches, seq, seq});
  }
  void forward() {
    at::bmm_out(scores, queries, keys.transpose(1, 2));
    at::bmm_out(mixed, scores, values);
  }
  void backward() {
    at::bmm_out(scores, values, keys.transpose(1, 2));
    for (int i = 0; i < 3; ++i) at::bmm_out(mixed, i == 0 ? scores : scores.transpose(1, 2), queries);
  }
};

struct Shape {
  int64_t layers = 0, hidden = 0, heads = 0, vocab = 0, seq = 0, samples = 0, parts = 1;
};

std::vector<Linear> linears_of(const Shape& shape, at::ScalarType dtype) {
  std::vector<Linear> linears;
  const int64_t hidden = shape.hidden, cut = hidden / shape.parts;
  const auto add = [&](int64_t in, int64_t out) { linears.emplace_back(shape.seq * shape.samples, in, out, dtype); };
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    add(hidden, 3 * cut);
    add(cut, hidden);
    add(hidden, 4 * cut);
    add(4 * cut, hidden);
  }
  add(hidden, shape.vocab / shape.parts);
  return linears;
}

std::vector<Attention> attentions_of(const Shape& shape) {
  std::vector<Attention> attentions;
  if (shape.heads == 0) return attentions;
  const int64_t heads = shape.heads / shape.parts, width = shape.hidden / shape.heads;
  for (int64_t layer = 0; layer < shape.layers; ++layer) attentions.emplace_back(shape.samples * heads, shape.seq, width);
  return attentions;
}

void pass(const std::vector<Linear>& linears) {
  for (const Linear& linear : linears) linear.forward();
  for (auto linear = linears.rbegin(); linear != linears.rend(); ++linear) linear->backward();
}
void pass(std::vector<Attention>& attentions) {
  for (Attention& attention : attentions) attention.forward();
  for (Attention& attention : attentions) attention.backward();
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 9 || words.size() > 10 || (words[1] != "float32" && words[1] != "bfloat16")) {
    fmt::print(stderr, "products_bench float32|bfloat16 LAYERS HIDDEN HEADS VOCAB SEQ SAMPLES SECONDS [PARTS]\n");
    return 2;
  }
  const auto number = [&](size_t place) { return static_cast<int64_t>(std::atoll(words[place].c_str())); };
  const Shape shape{number(2), number(3), number(4), number(5), number(6), number(7), words.size() > 9 ? number(9) : 1};
  if (shape.parts < 1 || shape.hidden % shape.parts || shape.heads % shape.parts || shape.vocab % shape.parts) {
    fmt::print(stderr, "products_bench: {} parts do not divide the width {}, the {} heads and the {} tokens of the vocabulary\n",
               shape.parts, shape.hidden, shape.heads, shape.vocab);
    return 2;
  }
  register_gemm_providers();
  const at::NoGradGuard no_grad;
  const auto linears = linears_of(shape, words[1] == "float32" ? at::kFloat : at::kBFloat16);
  std::vector<Attention> attentions = attentions_of(shape);
  pass(linears);
  pass(attentions);
  std::vector<double> linear, attention;
  for (double all = 0; all < static_cast<double>(number(8)); all += linear.back() + attention.back()) {
    linear.push_back(seconds_of([&] { pass(linears); }));
    attention.push_back(seconds_of([&] { pass(attentions); }));
  }
  fmt::print("{{\"linear\": [{}], \"attention\": [{}]}}\n", fmt::join(linear, ", "), fmt::join(attention, ", "));
  return 0;
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  return zt::run({argv, argv + argc});
}
