// What every vector loop of modules/nn/kernels.h gives on made-up rows, in one list: to compare the forms of the loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels.h"

namespace zt::nn::kernels {

// Numbers in (-4, 4), alike in each form.
template <class T>
std::vector<T> made_up(int64_t n, uint32_t seed) {
  std::vector<T> numbers(static_cast<std::size_t>(n));
  for (T& number : numbers) {
    seed = seed * 1664525 + 1013904223;
    number = (static_cast<T>(seed >> 8) / T(1 << 24) - T(0.5)) * 8;
  }
  return numbers;
}

template <class T>
std::vector<T> results(int64_t width) {
  constexpr int64_t kRows = 3;
  const int64_t n = kRows * width;
  const auto x = made_up<T>(2 * n, 1), bias = made_up<T>(2 * width, 2), dy = made_up<T>(n, 3);
  std::vector<T> all;
  const auto add_results = [&](std::initializer_list<std::vector<T>> lists) {
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  };
  std::vector<T> out(n), act(n), grad = dy, pre_grad(2 * n);
  gelu_tanh(out.data(), x.data(), bias.data(), kRows, width);
  gelu_tanh_backward(grad.data(), act.data(), x.data(), bias.data(), kRows, width);
  add_results({out, act, grad});
  swiglu(out.data(), x.data(), bias.data(), kRows, width);
  swiglu_backward(pre_grad.data(), act.data(), dy.data(), x.data(), bias.data(), kRows, width);
  add_results({out, act, pre_grad});

  const RowStats stats = row_stats(x.data(), n);
  scaled_softmax(out.data(), x.data(), n, stats, 0.7);
  add_results({out, {static_cast<T>(stats.largest), static_cast<T>(stats.sum)}});

  std::vector<T> reciprocal(kRows), weight_grad(width);
  rms_norm(out.data(), reciprocal.data(), x.data(), bias.data(), 1e-5, kRows, width);
  rms_norm_backward(grad.data(), dy.data(), x.data(), bias.data(), reciprocal.data(), kRows, width);
  rms_norm_weight(weight_grad.data(), dy.data(), x.data(), reciprocal.data(), kRows, width);
  add_results({out, reciprocal, grad, weight_grad});

  std::vector<uint8_t> keep(n);
  for (int64_t i = 0; i < n; ++i) keep[i] = x[i] > -1;
  scale_kept(out.data(), x.data(), keep.data(), dy.data(), 1.25, n);
  add(act.data(), out.data(), n);
  auto turned = x;
  rotate(turned.data(), bias.data(), bias.data() + width, width, -1);
  add_results({out, act, turned});
  return all;
}

}  // namespace zt::nn::kernels
