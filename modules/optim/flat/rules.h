// The update rules of the optimizers, for one element. Plain C++, AVX2, AVX-512 and CUDA use the same function, so all give the
// same bits. Multiplications and additions round separately (no contraction); square roots and divisions round correctly.
// Coefficients are computed in double on the host and rounded once.
//
// A rule is called as rule(p, g, first, second) with the parameter, the gradient and the states; it uses kStates of them and
// updates p and the states. Moving averages are written a += (1 - beta) * (x - a): the rounded values of beta and 1 - beta do not
// add up to 1, which would bias the average.
#pragma once

#include <cmath>

#include "zt/base/float16.h"

namespace zt::optim {

enum class Decay { l2, decoupled };  // weight decay: l2 is added to the gradient, decoupled is applied to the parameter
enum class Momentum { none, classic, nesterov };

// Adam (Kingma and Ba, 2015) with L2 regularisation, AdamW (Loshchilov and Hutter, 2019) with decoupled decay.
// States: exp_avg, exp_avg_sq.
template <class T, Decay kDecay>
struct AdamRule {
  using Element = T;
  static constexpr int kStates = 2;
  T grad_scale;
  T decay;         // l2: weight decay; decoupled: lr * weight decay
  T rest1, rest2;  // 1 - beta
  T step_size;     // lr / (1 - beta1^t)
  T root_scale;    // 1 / sqrt(1 - beta2^t)
  T eps;

  ZT_PER_ELEMENT void operator()(T& p, T g, T& m, T& v) const {
    using std::sqrt;
    g = g * grad_scale;
    if constexpr (kDecay == Decay::l2) g = g + decay * p;
    m = m + rest1 * (g - m);
    v = v + rest2 * (g * g - v);
    T change = step_size * (m / (sqrt(v) * root_scale + eps));
    if constexpr (kDecay == Decay::decoupled) change = change + decay * p;
    p = p - change;
  }
};

// Stochastic gradient descent with L2 regularisation, as in PyTorch. State: momentum_buffer, if there is momentum.
template <class T, Momentum kMomentum>
struct SgdRule {
  using Element = T;
  static constexpr int kStates = kMomentum == Momentum::none ? 0 : 1;
  T grad_scale;
  T decay;
  T momentum;
  T gain;  // weight of the gradient in the buffer: 1 at the first step, then 1 - dampening
  T lr;

  ZT_PER_ELEMENT void operator()(T& p, T g, T& buffer, T&) const {
    g = g * grad_scale;
    g = g + decay * p;
    T direction = g;
    if constexpr (kMomentum != Momentum::none) {
      buffer = momentum * buffer + gain * g;
      direction = kMomentum == Momentum::nesterov ? g + momentum * buffer : buffer;
    }
    p = p - lr * direction;
  }
};

// Lion (Chen et al., 2023, algorithm 2). State: exp_avg.
template <class T>
struct LionRule {
  using Element = T;
  static constexpr int kStates = 1;
  T grad_scale;
  T decay;         // lr * weight decay
  T rest1, rest2;  // 1 - beta
  T lr;

  ZT_PER_ELEMENT void operator()(T& p, T g, T& m, T&) const {
    g = g * grad_scale;
    const T u = m + rest1 * (g - m);
    const T sign = u > 0 ? T(1) : (u < 0 ? T(-1) : u);  // zero stays zero, and NaN stays NaN
    p = p - (lr * sign + decay * p);
    m = m + rest2 * (g - m);
  }
};

// Adagrad (Duchi et al., 2011) with L2 regularisation, as in PyTorch. State: sum.
template <class T>
struct AdagradRule {
  using Element = T;
  static constexpr int kStates = 1;
  T grad_scale;
  T decay;
  T initial;  // what the sum begins with, at the first step; 0 at others
  T lr;
  T eps;

  ZT_PER_ELEMENT void operator()(T& p, T g, T& sum, T&) const {
    using std::sqrt;
    g = g * grad_scale;
    g = g + decay * p;
    sum = (sum + initial) + g * g;
    p = p - lr * (g / (sqrt(sum) + eps));
  }
};

}  // namespace zt::optim

// Applies X to each rule. The CPU loops and the CUDA kernels are instantiated for these rules.
#define ZT_OPTIM_FOR_EACH_RULE_OF(T, X) \
  X(AdamRule<T, Decay::l2>)             \
  X(AdamRule<T, Decay::decoupled>)      \
  X(SgdRule<T, Momentum::none>)         \
  X(SgdRule<T, Momentum::classic>)      \
  X(SgdRule<T, Momentum::nesterov>)     \
  X(LionRule<T>)                        \
  X(AdagradRule<T>)
#define ZT_OPTIM_FOR_EACH_RULE(X)     \
  ZT_OPTIM_FOR_EACH_RULE_OF(float, X) \
  ZT_OPTIM_FOR_EACH_RULE_OF(double, X)
