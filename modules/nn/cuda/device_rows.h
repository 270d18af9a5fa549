// Dropout, rotary positions and table lookups, one row at a time (device_pack.h). The same formulas as in row_kernels.cpp.
#pragma once

#include "device_pack.h"

namespace zt::nn::device {

// Elements of a flat tensor per team.
constexpr int64_t kFlatRow = 4096;

// Writes out = keep ? x * scale : 0, plus residual unless it is null, for n elements.
template <class T>
struct ScaleKept {
  T* out;
  const T* x;
  const uint8_t* keep;
  const T* residual;
  double scale;
  int64_t n, rows = (n + kFlatRow - 1) / kFlatRow;

  int64_t items() const { return packs<T>(kFlatRow); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * kFlatRow, count = n - at < kFlatRow ? n - at : kFlatRow;
    const auto factor = static_cast<Wide<T>>(scale);
    each_pack<T>(team, count, [&](int64_t j) {
      auto v = load<kPack<T>>(x + at, j, count);
      const auto kept = load<kPack<T>>(keep + at, j, count);
      const auto more = load<kPack<T>>(residual ? residual + at : nullptr, j, count);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) v.at[i] = more.at[i] + (kept.at[i] != 0 ? v.at[i] * factor : Wide<T>(0));
      store(out + at, v, j, count);
    });
  }
};

// Rotates the pairs (head[i], head[i + half]) of the first `heads` heads of each row of x [rows, columns]. The tables of cosines
// and sines are [positions, half]; row r uses their row table_row[r % tokens]. sign is 1, or -1 for the negative angles.
template <class T>
struct Rotate {
  T* x;
  const Wide<T>*cosine, *sine;
  const int64_t* table_row;
  int64_t tokens;
  double sign;
  int64_t heads, half, rows, columns;

  int64_t items() const { return heads * packs<T>(half); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t row) const {
    using W = Wide<T>;
    const W s = static_cast<W>(sign);
    const int64_t place = table_row[row % tokens] * half, packs_of_head = packs<T>(half);
    const W *c = cosine + place, *d = sine + place;
    team.each(heads * packs_of_head, [&](int64_t item) {
      T* head = x + row * columns + item / packs_of_head * 2 * half;
      const int64_t j = item % packs_of_head * kPack<T>;
      auto a = load<kPack<T>>(static_cast<const T*>(head), j, half),
           b = load<kPack<T>>(static_cast<const T*>(head) + half, j, half);
      const auto cos = load<kPack<T>>(c, j, half), sin = load<kPack<T>>(d, j, half);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) {
        const W first = a.at[i], second = b.at[i];
        a.at[i] = first * cos.at[i] - second * s * sin.at[i];
        b.at[i] = second * cos.at[i] + first * s * sin.at[i];
      }
      store(head, a, j, half);
      store(head + half, b, j, half);
    });
  }
};

// Adds out[r] += table[index[r]]. out: [rows, width].
template <class T>
struct GatherRows {
  T* out;
  const T* table;
  const int64_t* index;
  int64_t rows, width;

  int64_t items() const { return packs<T>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t r) const {
    T* to = out + r * width;
    each_pack<T>(team, width, [&](int64_t j) {
      auto sum = load<kPack<T>>(static_cast<const T*>(to), j, width);
      const auto v = load<kPack<T>>(table + index[r] * width, j, width);
      ZT_UNROLL
      for (int i = 0; i < kPack<T>; ++i) sum.at[i] += v.at[i];
      store(to, sum, j, width);
    });
  }
};

// Adds the rows of from [rows, width] to the table rows that they belong to, in ascending order, rounded once. `index` [rows] is
// sorted; row from[place[i]] belongs to table row index[i], and the places of equal indices ascend. The team at the first use of
// an index adds all rows of that index.
template <class To, class From>
struct ScatterRows {
  To* table;
  const From* from;
  const int64_t *index, *place;
  int64_t rows, width;

  int64_t items() const { return packs<From>(width); }
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t first) const {
    const int64_t mine = index[first];
    if (first > 0 && index[first - 1] == mine) return;
    int64_t end = first + 1;
    while (end < rows && index[end] == mine) ++end;
    To* to = table + mine * width;
    each_pack<From>(team, width, [&](int64_t j) {
      auto sum = load<kPack<From>>(static_cast<const To*>(to), j, width);
      ZT_UNROLL_BY(4)
      for (int64_t use = first; use < end; ++use) {
        const auto v = load<kPack<From>>(from + place[use] * width, j, width);
        ZT_UNROLL
        for (int i = 0; i < kPack<From>; ++i) sum.at[i] += v.at[i];
      }
      store(to, sum, j, width);
    });
  }
};

// Writes keep[sample * sample_pitch + line * pitch + j], for j < width. Dropout keeps this element if number
// first + line * stride + j of row first_sample + sample of the random stream, as from zt::Philox::uniform, is at least `limit`.
struct KeepMask {
  uint8_t* keep;
  uint64_t key, first_sample, first;
  float limit;
  int64_t samples, sample_pitch, lines, stride, width, pitch;
  int64_t teams_of_line = (width + kFlatRow - 1) / kFlatRow, rows = samples * lines * teams_of_line;

  int64_t items() const { return (width < kFlatRow ? width : kFlatRow) / 4 + 2; }
  // The generator makes four numbers at a time. `before`: how many of the first four belong to elements before this part.
  template <class Team>
  ZT_DEVICE void operator()(const Team& team, int64_t row) const {
    const int64_t sample = row / (lines * teams_of_line), line = row / teams_of_line % lines;
    const int64_t begin = row % teams_of_line * kFlatRow;
    const int64_t count = width - begin < kFlatRow ? width - begin : kFlatRow;
    const uint64_t number = first + static_cast<uint64_t>(line * stride + begin);
    const auto before = static_cast<int64_t>(number % 4);
    uint8_t* to = keep + sample * sample_pitch + line * pitch + begin;
    team.each((before + count + 3) / 4, [&](int64_t block) {
      uint32_t word[4];
      philox(word, first_sample + static_cast<uint64_t>(sample), number / 4 + static_cast<uint64_t>(block));
      ZT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t j = block * 4 + i - before;
        if (j >= 0 && j < count) to[j] = static_cast<float>(word[i] >> 8) * 0x1p-24F >= limit;
      }
    });
  }

 private:
  // Writes Philox4x32-10 (Salmon et al. 2011) of the counter (high, low) to `word`.
  ZT_DEVICE void philox(uint32_t (&word)[4], uint64_t high, uint64_t low) const {
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    word[0] = static_cast<uint32_t>(low), word[1] = static_cast<uint32_t>(low >> 32);
    word[2] = static_cast<uint32_t>(high), word[3] = static_cast<uint32_t>(high >> 32);
    ZT_UNROLL
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const uint64_t p0 = uint64_t{word[0]} * 0xD2511F53, p1 = uint64_t{word[2]} * 0xCD9E8D57;
      word[0] = static_cast<uint32_t>(p1 >> 32) ^ word[1] ^ k0;
      word[1] = static_cast<uint32_t>(p1);
      word[2] = static_cast<uint32_t>(p0 >> 32) ^ word[3] ^ k1;
      word[3] = static_cast<uint32_t>(p0);
    }
  }
};

}  // namespace zt::nn::device
