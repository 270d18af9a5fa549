// Collects the results of all vector loops of modules/nn/cpu/kernels.h on made-up rows in one list, to compare instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cpu/kernels.h"

namespace zt::nn::kernels {

// Returns numbers in (-4, 4), the same for each instruction set.
template <class T>
std::vector<T> made_up(int64_t n, uint32_t seed) {
  std::vector<T> numbers(static_cast<std::size_t>(n));
  for (T& number : numbers) {
    seed = seed * 1664525 + 1013904223;
    number = static_cast<T>((static_cast<Wide<T>>(seed >> 8) / Wide<T>(1 << 24) - Wide<T>(0.5)) * 8);
  }
  return numbers;
}

// A list of results. 16-bit results are held as float, which is exact.
template <class T>
struct Results {
  std::vector<Wide<T>> all;
  template <class... Lists>
  void add(const Lists&... lists) {
    (all.insert(all.end(), lists.begin(), lists.end()), ...);
  }
};

template <class T>
void add_norms(Results<T>& results, int64_t rows, int64_t width, const std::vector<T>& x, const std::vector<T>& weight,
               const std::vector<T>& dy) {
  using W = Wide<T>;
  const std::size_t n = rows * width;
  std::vector<T> out(n), dx(n);
  std::vector<W> mean(rows), reciprocal(rows), dweight(width, W(1)), dbias(width, W(2));
  const T* bias = weight.data() + width;
  norm<T>(out.data(), {mean.data(), reciprocal.data()}, x.data(), weight.data(), bias, 1e-5, rows, width);
  norm_backward<T>(dx.data(), dweight.data(), dbias.data(), dy.data(), x.data(), weight.data(), x.data(),
                   {mean.data(), reciprocal.data()}, rows, width);
  results.add(out, mean, reciprocal, dx, dweight, dbias);
  norm<T>(out.data(), {nullptr, reciprocal.data()}, x.data(), weight.data(), nullptr, 1e-5, rows, width);
  norm_backward<T>(dx.data(), dweight.data(), nullptr, dy.data(), x.data(), weight.data(), x.data(), {nullptr, reciprocal.data()},
                   rows, width);
  results.add(out, reciprocal, dx, dweight);
}

template <class T>
std::vector<Wide<T>> results(int64_t width) {
  using W = Wide<T>;
  constexpr int64_t kRows = 3;
  const int64_t n = kRows * width;
  const auto x = made_up<T>(2 * n, 1), bias = made_up<T>(2 * width, 2), dy = made_up<T>(n, 3);
  const auto angles = made_up<W>(2 * width, 4);
  Results<T> results;
  std::vector<T> out(n), act(n), grad = dy, pre_grad(2 * n);
  for (const T* b : {bias.data(), static_cast<const T*>(nullptr)}) {
    gelu_tanh<T>(out.data(), x.data(), b, kRows, width);
    gelu_tanh_backward<T>(grad.data(), act.data(), x.data(), b, kRows, width);
    results.add(out, act, grad);
    swiglu<T>(out.data(), x.data(), b, kRows, width);
    swiglu_backward<T>(pre_grad.data(), act.data(), dy.data(), x.data(), b, kRows, width);
    results.add(out, act, pre_grad);
  }

  const RowStats stats = row_stats(x.data(), n);
  scaled_softmax(out.data(), x.data(), n, stats, 0.7);
  results.add(out, std::vector<W>{static_cast<W>(stats.largest), static_cast<W>(stats.sum)});

  add_norms(results, kRows, width, x, bias, dy);

  std::vector<uint8_t> keep(n);
  for (int64_t i = 0; i < n; ++i) keep[i] = x[i] > T(-1);
  scale_kept<T>(out.data(), x.data(), keep.data(), nullptr, 1.25, n);
  scale_kept(act.data(), x.data(), keep.data(), dy.data(), 1.25, n);
  auto turned = x;
  rotate(turned.data(), angles.data(), angles.data() + width, kRows, width, -1);
  const std::vector<int64_t> rows{2, 0, 0, 1};
  std::vector<W> sums = angles;
  add_rows(sums.data(), x.data(), rows.data(), 4, width, width);
  add_rows(grad.data(), x.data(), rows.data(), 4, width, width);
  results.add(out, act, turned, sums, grad);
  return results.all;
}

}  // namespace zt::nn::kernels
