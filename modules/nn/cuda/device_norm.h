// LayerNorm and RMSNorm, one row at a time (device_pack.h). The same formulas as in norm_kernels.cpp; the variance is not
// computed as a difference of squares, which would lose precision.
#pragma once

#include <cmath>

#include "device_pack.h"

namespace zt::nn::device {

// Where the rows of a norm begin: `together` rows follow each other without gaps, and the next ones begin `stride` elements after
// these. together = 0 means that all rows follow each other.
struct RowPlaces {
  int64_t together = 0, stride = 0;

  ZT_DEVICE int64_t operator()(int64_t row, int64_t width) const {
    return together ? row / together * stride + row % together * width : row * width;
  }
};

// Writes out = (x - mean) * reciprocal * weight + bias, and the stats. bias may be null. For RMSNorm, stats.mean is null. Rows of
// x and out are at the same places.
template <class T>
struct NormForward {
  T* out;
  kernels::NormStats<Wide<T>> stats;
  const T *x, *weight, *bias;
  double eps;
  int64_t rows, width;
  RowPlaces places = {};

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t r) const {
    using W = Wide<T>;
    using std::sqrt;
    const int64_t at = places(r, width);
    const T* row = x + at;
    const auto n = static_cast<double>(width);
    const W mean = stats.mean ? static_cast<W>(sum_of(team, row, W(0), Power::one) / n) : W(0);
    const W scale = static_cast<W>(1 / sqrt(sum_of(team, row, mean, Power::two) / n + eps));
    team.once([&] {
      if (stats.mean) stats.mean[r] = mean;
      stats.reciprocal[r] = scale;
    });
    each_pack<T>(team, width, [&](int64_t j) {
      auto v = load<kPack<T>>(row, j, width);
      const auto w = load<kPack<T>>(weight, j, width), b = load<kPack<T>>(bias, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) v.at[i] = (v.at[i] - mean) * scale * w.at[i] + b.at[i];
      store(out + at, v, j, width);
    });
  }

 private:
  enum class Power : uint8_t { one, two };

  // Returns the sum of (row[j] - from)^power. The sum of a pack is in Wide<T>, the sum of packs in double.
  template <class Team>
  ZT_DEVICE double sum_of(const Team& team, const T* row, Wide<T> from, Power power) const {
    const auto take = [&](double& own, int64_t pack) {
      const int64_t j = pack * kPack<T>;
      const auto v = load<kPack<T>>(row, j, width);
      Wide<T> sum = 0;
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        const Wide<T> off = j + i < width ? v.at[i] - from : Wide<T>(0);
        sum += power == Power::two ? off * off : off;
      }
      own += static_cast<double>(sum);
    };
    return team.reduce(packs<T>(width), 0.0, take, Add{});
  }
};

// Writes dx = (g - mean(g) - h mean(g h)) / deviation, where g = dy * weight and h = (x - mean) / deviation, plus `beside` unless
// it is null. RMSNorm has no mean(g). `stats` are those that NormForward wrote. Rows of all four are at the same places.
template <class T>
struct NormBackward {
  T* dx;
  const T *dy, *x, *weight, *beside;
  kernels::NormStats<const Wide<T>> stats;
  int64_t rows, width;
  RowPlaces places = {};

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t r) const {
    using W = Wide<T>;
    const int64_t at = places(r, width);
    const W mean = stats.mean ? stats.mean[r] : W(0), scale = stats.reciprocal[r];
    const auto take = [&](Two& own, int64_t pack) {
      const int64_t j = pack * kPack<T>;
      const auto v = load<kPack<T>>(x + at, j, width), w = load<kPack<T>>(weight, j, width),
                 d = load<kPack<T>>(dy + at, j, width);
      W dot = 0, sum = 0;
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        const W g = d.at[i] * w.at[i];  // 0 after the end of the row
        dot += g * (v.at[i] - mean);
        sum += g;
      }
      own.a += static_cast<double>(dot);
      own.b += static_cast<double>(sum);
    };
    const Two sums = team.reduce(packs<T>(width), Two{}, take, Add{});
    const auto n = static_cast<double>(width);
    const W pull = static_cast<W>(sums.a / n) * scale * scale, shift = stats.mean ? static_cast<W>(sums.b / n) : W(0);
    each_pack<T>(team, width, [&](int64_t j) {
      const auto v = load<kPack<T>>(x + at, j, width), w = load<kPack<T>>(weight, j, width),
                 other = load<kPack<T>>(beside ? beside + at : nullptr, j, width);
      auto d = load<kPack<T>>(dy + at, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        d.at[i] = scale * (d.at[i] * w.at[i] - shift - (v.at[i] - mean) * pull) + other.at[i];
      }
      store(dx + at, d, j, width);
    });
  }
};

// Rows per block. A lane adds the gradients of one block's rows in ascending order. More rows leave fewer partial sums, fewer
// rows keep a GPU busier.
constexpr int64_t kSumRows = 32;
// Returns the number of blocks of `rows` rows.
ZT_DEVICE int64_t sum_blocks(int64_t rows) {
  return (rows + kSumRows - 1) / kSumRows;
}

// Writes the gradients of weight and bias per block of kSumRows rows of x. dweight and dbias are [rows, width] with rows =
// sum_blocks(rows_of_x); each may be null.
template <class T>
struct NormParts {
  Wide<T>*dweight, *dbias;
  const T *dy, *x;
  kernels::NormStats<const Wide<T>> stats;
  int64_t rows_of_x, rows, width;
  RowPlaces places = {};  // of the rows of dy and x

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t block) const {
    const int64_t begin = block * kSumRows, end = begin + kSumRows < rows_of_x ? begin + kSumRows : rows_of_x;
    each_pack<T>(team, width, [&](int64_t j) {
      Pack<kPack<T>, Wide<T>> weight{}, bias{};
      ZT_UNROLL_BY(4)
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = places(r, width);
        const auto v = load<kPack<T>>(x + at, j, width), d = load<kPack<T>>(dy + at, j, width);
        const Wide<T> mean = stats.mean ? stats.mean[r] : Wide<T>(0), scale = stats.reciprocal[r];
        ZT_UNROLL
        for (int i = 0; i < kPack<T>; ++i) {
          weight.at[i] += d.at[i] * (v.at[i] - mean) * scale;
          bias.at[i] += d.at[i];
        }
      }
      if (dweight) store(dweight + block * width, weight, j, width);
      if (dbias) store(dbias + block * width, bias, j, width);
    });
  }
};

// Writes out [rows, width]: row b is the sum of the kSumRows rows of in [rows_in, width] that begin at row b * kSumRows, in
// ascending order. Repeated until one row is left, it sums all rows in a fixed tree.
template <class T>
struct SumRows {
  T* out;
  const T* in;
  int64_t rows_in, rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t block) const {
    const int64_t begin = block * kSumRows, end = begin + kSumRows < rows_in ? begin + kSumRows : rows_in;
    each_pack<T>(team, width, [&](int64_t j) {
      Pack<kPack<T>, Wide<T>> sum{};
      ZT_UNROLL_BY(8)
      for (int64_t r = begin; r < end; ++r) {
        const auto v = load<kPack<T>>(in + r * width, j, width);
        ZT_UNROLL
        for (int i = 0; i < kPack<T>; ++i) sum.at[i] += v.at[i];
      }
      store(out + block * width, sum, j, width);
    });
  }
};

}  // namespace zt::nn::device
