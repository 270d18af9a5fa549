// Activations and their gradients, one row at a time (device_pack.h). The same formulas as in activation_kernels.cpp, but with
// the exp of the device.
#pragma once

#include <cmath>

#include "cpu/gelu.h"
#include "device_pack.h"

namespace zt::nn::device {

template <class W>
ZT_DEVICE W sigmoid(W x) {
  using std::exp;
  return W(1) / (W(1) + exp(-x));
}

using kernels::Gelu;

// Returns the factor of x in gelu_tanh(x).
template <class W>
ZT_DEVICE W gelu_gate(W x) {
  return sigmoid(Gelu<W>::twice_u(x));
}

// Writes out = gelu_tanh(pre + bias). All are [rows, width], bias is [width] or null.
template <class T>
struct GeluTanh {
  T* out;
  const T *pre, *bias;
  int64_t rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * width;
    each_pack<T>(team, width, [&](int64_t j) {
      auto x = load<kPack<T>>(pre + at, j, width);
      const auto b = load<kPack<T>>(bias, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        const Wide<T> sum = x.at[i] + b.at[i];
        x.at[i] = sum * gelu_gate(sum);
      }
      store(out + at, x, j, width);
    });
  }
};

// Turns grad from dL/dout into dL/dpre. Writes act = gelu_tanh(pre + bias).
template <class T>
struct GeluTanhBackward {
  T *grad, *act;
  const T *pre, *bias;
  int64_t rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * width;
    each_pack<T>(team, width, [&](int64_t j) {
      auto x = load<kPack<T>>(pre + at, j, width), g = load<kPack<T>>(static_cast<const T*>(grad) + at, j, width);
      const auto b = load<kPack<T>>(bias, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        const Wide<T> sum = x.at[i] + b.at[i], gate = gelu_gate(sum);
        x.at[i] = sum * gate;
        g.at[i] *= Gelu<Wide<T>>::slope(sum, gate);
      }
      store(act + at, x, j, width);
      store(grad + at, g, j, width);
    });
  }
};

// Writes out [rows, width] = silu(gate) * up, where each row of pre + bias [rows, 2 * width] holds gate, then up. bias may be
// null.
template <class T>
struct Swiglu {
  T* out;
  const T *pre, *bias;
  int64_t rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t row) const {
    const T *gates = pre + row * 2 * width, *ups = gates + width, *up_bias = bias ? bias + width : nullptr;
    each_pack<T>(team, width, [&](int64_t j) {
      auto gate = load<kPack<T>>(gates, j, width);
      const auto up = load<kPack<T>>(ups, j, width), b = load<kPack<T>>(bias, j, width), c = load<kPack<T>>(up_bias, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        const Wide<T> x = gate.at[i] + b.at[i];
        gate.at[i] = x * sigmoid(x) * (up.at[i] + c.at[i]);
      }
      store(out + row * width, gate, j, width);
    });
  }
};

// Writes dL/dpre [rows, 2 * width] and the activation act [rows, width]. grad [rows, width] is dL/dout.
template <class T>
struct SwigluBackward {
  T *dpre, *act;
  const T *grad, *pre, *bias;
  int64_t rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t row) const {
    using W = Wide<T>;
    const T *gates = pre + row * 2 * width, *ups = gates + width, *up_bias = bias ? bias + width : nullptr;
    each_pack<T>(team, width, [&](int64_t j) {
      auto gate = load<kPack<T>>(gates, j, width), up = load<kPack<T>>(ups, j, width);
      auto g = load<kPack<T>>(grad + row * width, j, width);
      const auto b = load<kPack<T>>(bias, j, width), c = load<kPack<T>>(up_bias, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        const W x = gate.at[i] + b.at[i], u = up.at[i] + c.at[i], dy = g.at[i], s = sigmoid(x);
        g.at[i] = x * s * u;
        gate.at[i] = dy * u * s * (W(1) + x * (W(1) - s));
        up.at[i] = dy * x * s;
      }
      store(act + row * width, g, j, width);
      store(dpre + row * 2 * width, gate, j, width);
      store(dpre + row * 2 * width + width, up, j, width);
    });
  }
};

}  // namespace zt::nn::device
