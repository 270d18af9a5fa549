// The cross-entropy of logits on a GPU, one row at a time (device_pack.h). See softmax_loss.h.
#pragma once

#include <cmath>
#include <limits>

#include "device_pack.h"

namespace zt::nn::device {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The class of each row. Rows with the label ignore_index do not count.
struct Labels {
  const int64_t* label;
  int64_t ignore_index;
};

// Computes a row's largest element and sum of exponentials in one pass (Milakov, Gimelshein 2018): the sum is scaled down when a
// larger element appears. It is the `take` and the `combine` of Team::reduce.
template <class T>
struct Exponentials {
  using Stats = kernels::RowStats;
  using W = Wide<T>;
  const T* row;
  int64_t width;

  static ZT_DEVICE Stats none() { return {-kInfinity, 0}; }
  static ZT_DEVICE double shrunk(const Stats& stats, double largest) {
    using std::exp;
    return stats.largest == largest ? stats.sum : stats.sum * static_cast<double>(exp(static_cast<W>(stats.largest - largest)));
  }
  ZT_DEVICE void operator()(Stats& own, int64_t pack) const {  // take
    using std::exp;
    const int64_t j = pack * kPack<T>;
    const auto v = load<kPack<T>>(row, j, width);
    auto largest = static_cast<W>(own.largest);
    ZT_UNROLL
    for (int i = 0; i < kPack<T>; ++i) largest = j + i < width && v.at[i] > largest ? v.at[i] : largest;
    own = {static_cast<double>(largest), shrunk(own, static_cast<double>(largest))};
    const W from = largest == static_cast<W>(-kInfinity) ? W(0) : largest;  // all elements so far are -inf
    ZT_UNROLL
    for (int i = 0; i < kPack<T>; ++i) {
      if (j + i < width) own.sum += static_cast<double>(exp(v.at[i] - from));
    }
  }
  ZT_DEVICE Stats operator()(const Stats& a, const Stats& b) const {  // combine
    const double largest = a.largest > b.largest ? a.largest : b.largest;
    return {largest, shrunk(a, largest) + shrunk(b, largest)};
  }
};

// Writes the stats [rows] of logits [rows, width], and losses [rows] = -log softmax(row)[label], 0 for ignored rows.
template <class T>
struct SoftmaxLosses {
  double* losses;
  kernels::RowStats* stats;
  const T* logits;
  Labels labels;
  int64_t rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t r) const {
    using std::log;
    const int64_t label = labels.label[r];
    if (label == labels.ignore_index) return team.once([&] { losses[r] = 0; });
    const Exponentials<T> row{logits + r * width, width};
    const kernels::RowStats found = team.reduce(packs<T>(width), row.none(), row, row);
    team.once([&] {
      stats[r] = found;
      losses[r] = found.largest + log(found.sum) - static_cast<double>(widen(row.row[label]));
    });
  }
};

// Writes out = scale * (softmax(logits) - one_hot(label)) [rows, width], zeros in ignored rows. `stats` are those that
// SoftmaxLosses wrote. `out` may be `logits`, but must not overlap them otherwise.
template <class T>
struct SoftmaxGradient {
  T* out;
  const T* logits;
  const kernels::RowStats* stats;
  const double* scale;
  Labels labels;
  int64_t rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t r) const {
    using std::exp;
    using W = Wide<T>;
    const T* row = logits + r * width;
    T* to = out + r * width;
    const int64_t label = labels.label[r];
    if (label == labels.ignore_index) return each_pack<T>(team, width, [&](int64_t j) { store(to, Zeros{}, j, width); });
    const kernels::RowStats found = stats[r];
    const W largest = static_cast<W>(found.largest), factor = static_cast<W>(*scale / found.sum);
    // In double: for a confident prediction, softmax - 1 is far below the rounding error of softmax in float.
    const double own = static_cast<double>(widen(row[label]));
    const W own_gradient = static_cast<W>(*scale * (exp(own - found.largest) / found.sum - 1));
    team.join();  // all lanes have read the label's logit before one overwrites it
    each_pack<T>(team, width, [&](int64_t j) {
      auto v = load<kPack<T>>(row, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) v.at[i] = j + i == label ? own_gradient : exp(v.at[i] - largest) * factor;
      store(to, v, j, width);
    });
  }

 private:
  using Zeros = Pack<kPack<T>, Wide<T>>;
};

// Writes the sum of terms [width] to *out, in a fixed order.
struct SumAll {
  double* out;
  const double* terms;
  int64_t rows, width;  // rows = 1

  int64_t items() const { return width; }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t) const {
    const double sum = team.reduce(
        width, 0.0, [&](double& own, int64_t i) { own += terms[i]; }, Add{});
    team.once([&] { *out = sum; });
  }
};

}  // namespace zt::nn::device
