// Vectorised loops over rows, compiled for AVX-512, AVX2 and plain x86-64 and chosen at run time. All three give equal bits.
// T is the stored type: double, float, c10::BFloat16 or c10::Half. Loops compute in Wide<T> and round each result once, to
// nearest even. Rows are contiguous. The loops are single-threaded; callers divide the rows among threads.
//
// exp in float: relative error below 4e-7 (truncation 5e-9, the rest rounding), 0 below -87.3, e^88.3 above 88.3, nan for nan.
#pragma once

#include <cstdint>

#include "zt/base/float16.h"

namespace zt::nn::kernels {

using zt::Wide;

// Writes out = gelu_tanh(pre + bias). All are [rows, width], bias is [width] or null.
template <class T>
void gelu_tanh(T* out, const T* pre, const T* bias, int64_t rows, int64_t width);
// Turns grad from dL/dout into dL/dpre. Writes act = gelu_tanh(pre + bias).
template <class T>
void gelu_tanh_backward(T* grad, T* act, const T* pre, const T* bias, int64_t rows, int64_t width);

// Writes out [rows, width] = silu(gate) * up, where each row of pre + bias [rows, 2 * width] holds gate, then up. bias may be
// null.
template <class T>
void swiglu(T* out, const T* pre, const T* bias, int64_t rows, int64_t width);
// Writes dL/dpre [rows, 2 * width] and the activation act [rows, width]. grad [rows, width] is dL/dout.
template <class T>
void swiglu_backward(T* dpre, T* act, const T* grad, const T* pre, const T* bias, int64_t rows, int64_t width);

// The largest element of a row and the sum of exp(x - largest). Sums of blocks of 256 elements are added in double.
struct RowStats {
  double largest = 0, sum = 0;
};
template <class T>
RowStats row_stats(const T* x, int64_t n);
// Writes out = scale * softmax(x), given the row's stats. `out` may be `x`, but must not overlap it otherwise.
template <class T>
void scaled_softmax(T* out, const T* x, int64_t n, const RowStats& stats, double scale);

// What the gradient of a row of logits x depends on, with z = x * scale - largest and p = exp(z) / sum.
struct LogprobRow {
  double largest, sum, scale;
  double by_logprob, by_entropy;  // gradients of log p[label] and of the entropy, times `scale`
  double shift;                   // entropy - log(sum)
};
// Overwrites x by -p (by_logprob + by_entropy (z + shift)): its gradient, but for the label's element.
template <class T>
void logprob_gradient(T* x, int64_t n, const LogprobRow& row);

// Statistics of the rows of a norm, [rows] each. For RMSNorm, mean is null and counts as 0.
template <class W>
struct NormStats {
  W *mean, *reciprocal;  // reciprocal: 1 / sqrt(mean((x - mean)^2) + eps)
};
// Writes out = (x - mean) * reciprocal * weight + bias, and the stats. bias may be null.
template <class T>
void norm(T* out, NormStats<Wide<T>> stats, const T* x, const T* weight, const T* bias, double eps, int64_t rows, int64_t width);
// Writes dx, the gradient of x, plus `beside`, another gradient of x, unless it is null. Adds the gradients of weight and bias,
// summed over these rows, to dweight and dbias [width]; each may be null.
template <class T>
void norm_backward(T* dx, Wide<T>* dweight, Wide<T>* dbias, const T* dy, const T* x, const T* weight, const T* beside,
                   NormStats<const Wide<T>> stats, int64_t rows, int64_t width);

// Writes kept[i] = numbers[i] >= limit, for n elements.
void not_below(uint8_t* kept, const float* numbers, float limit, int64_t n);
// Writes out = keep ? x * scale : 0, plus residual unless it is null, for n elements.
template <class T>
void scale_kept(T* out, const T* x, const uint8_t* keep, const T* residual, double scale, int64_t n);

// Rotates the pairs (x[i], x[i + half]) of `heads` heads of 2 * half elements by the angles with the given cosines and sines
// [half]. sign is 1, or -1 for the negative angles.
template <class T>
void rotate(T* x, const Wide<T>* cosine, const Wide<T>* sine, int64_t heads, int64_t half, double sign);

// Adds to to[j], for j < n, the sum over i < count of from[rows[i] * stride + j]: i ascending, rounded once. To is From or
// Wide<From>.
template <class To, class From>
void add_rows(To* to, const From* from, const int64_t* rows, int64_t count, int64_t stride, int64_t n);

}  // namespace zt::nn::kernels
