// Vectorised loops over rows, compiled for AVX-512, AVX2 and plain x86-64 and chosen at run time; the three give equal bits.
// T is float or double. Rows are contiguous. No threads here: callers cut the rows.
//
// exp in float: relative error below 4e-7 (truncation 5e-9, the rest rounding), 0 under -87.3, e^88.3 above 88.3, nan for nan.
#pragma once

#include <cstdint>

namespace zt::nn::kernels {

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

// out = x * weight / rms, rms = sqrt(mean(x^2) + eps). reciprocal: [rows] 1 / rms, written.
template <class T>
void rms_norm(T* out, T* reciprocal, const T* x, const T* weight, double eps, int64_t rows, int64_t width);
template <class T>
void rms_norm_backward(T* dx, const T* dy, const T* x, const T* weight, const T* reciprocal, int64_t rows, int64_t width);
// dweight[j] += sum over rows of dy x / rms.
template <class T>
void rms_norm_weight(T* dweight, const T* dy, const T* x, const T* reciprocal, int64_t rows, int64_t width);

// out = keep ? x * scale : 0, plus residual unless nullptr. n elements.
template <class T>
void scale_kept(T* out, const T* x, const uint8_t* keep, const T* residual, double scale, int64_t n);

// Turns the pairs (x[i], x[i + half]) of one head by the angles whose cosine and sine are given; sign = -1 turns back.
template <class T>
void rotate(T* x, const T* cosine, const T* sine, int64_t half, double sign);

// to += from, n elements.
template <class T>
void add(T* to, const T* from, int64_t n);

}  // namespace zt::nn::kernels
