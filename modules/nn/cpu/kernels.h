// Vectorised loops over rows, compiled for AVX-512, AVX2 and plain x86-64 and chosen at run time; the three give equal bits.
// T is double, float, c10::BFloat16 or c10::Half: how numbers are stored. One computes in Wide<T> and rounds once, to nearest
// even, where a number is stored. Rows are contiguous. No threads here: callers cut the rows.
//
// exp in float: relative error below 4e-7 (truncation 5e-9, the rest rounding), 0 under -87.3, e^88.3 above 88.3, nan for nan.
#pragma once

#include <cstdint>

#include "zt/base/float16.h"

namespace zt::nn::kernels {

using zt::Wide;

// out = gelu_tanh(pre + bias); bias may be nullptr. All [rows, width].
template <class T>
void gelu_tanh(T* out, const T* pre, const T* bias, int64_t rows, int64_t width);
// grad: in dL/dout, out dL/dpre. act: gelu_tanh(pre + bias) once more.
template <class T>
void gelu_tanh_backward(T* grad, T* act, const T* pre, const T* bias, int64_t rows, int64_t width);

// out [rows, width] = silu(gate) * up, where pre + bias [rows, 2 * width] holds gate, then up; bias may be nullptr.
template <class T>
void swiglu(T* out, const T* pre, const T* bias, int64_t rows, int64_t width);
// grad [rows, width] is dL/dout; writes dL/dpre [rows, 2 * width] and the activation [rows, width].
template <class T>
void swiglu_backward(T* dpre, T* act, const T* grad, const T* pre, const T* bias, int64_t rows, int64_t width);

// The largest element of a row and the sum of exp(x - largest), summed in double by blocks of 256.
struct RowStats {
  double largest = 0, sum = 0;
};
template <class T>
RowStats row_stats(const T* x, int64_t n);
// out = scale * softmax(x), with the row's stats. In place iff out is x.
template <class T>
void scaled_softmax(T* out, const T* x, int64_t n, const RowStats& stats, double scale);

// What a norm finds out about its rows: [rows] each. mean is nullptr in RMSNorm, where it counts as 0.
template <class W>
struct NormStats {
  W *mean, *reciprocal;  // reciprocal: 1 / sqrt(mean((x - mean)^2) + eps)
};
// out = (x - mean) * reciprocal * weight + bias; writes the stats. bias may be nullptr.
template <class T>
void norm(T* out, NormStats<Wide<T>> stats, const T* x, const T* weight, const T* bias, double eps, int64_t rows, int64_t width);
// dx: the gradient of x, plus `beside`, its gradient from elsewhere, unless nullptr. Adds to dweight and dbias [width] the rows'
// parts of those of weight and bias; each may be nullptr.
template <class T>
void norm_backward(T* dx, Wide<T>* dweight, Wide<T>* dbias, const T* dy, const T* x, const T* weight, const T* beside,
                   NormStats<const Wide<T>> stats, int64_t rows, int64_t width);

// kept[i] = whether numbers[i] >= limit. n elements.
void not_below(uint8_t* kept, const float* numbers, float limit, int64_t n);
// out = keep ? x * scale : 0, plus residual unless nullptr. n elements.
template <class T>
void scale_kept(T* out, const T* x, const uint8_t* keep, const T* residual, double scale, int64_t n);

// Turns the pairs (x[i], x[i + half]) of `heads` heads of 2 * half elements by the angles whose cosines and sines [half] are
// given; sign = -1 turns back.
template <class T>
void rotate(T* x, const Wide<T>* cosine, const Wide<T>* sine, int64_t heads, int64_t half, double sign);

// to[j] += the sum over i < count of from[rows[i] * stride + j], for j < n: i ascending, rounded once. To is From or Wide<From>.
template <class To, class From>
void add_rows(To* to, const From* from, const int64_t* rows, int64_t count, int64_t stride, int64_t n);

}  // namespace zt::nn::kernels
