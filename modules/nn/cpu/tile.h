// Loops on small matrices ("tiles") that stay in the cache: what attention is made of. Every form, of one instruction set each,
// gives the same bits: products add in the order of the depth, each step one fused multiply-add. No threads here.
//
// A is float or double: what is computed in. T is what tensors hold: float, double, c10::BFloat16 or c10::Half.
#pragma once

#include <cstdint>

#include "zt/base/isa.h"

namespace zt::nn::tile {

constexpr int64_t kChunk = 16;  // columns that a tile is padded to
constexpr int64_t kPanel = 32;  // columns of a product that share one pass over the depth

constexpr int64_t padded(int64_t n, int64_t to = kChunk) {
  return (n + to - 1) / to * to;
}

// c(i, j) = sum over p of a(i, p) b(p, j), added to c(i, j) if `add`. Columns are a multiple of kChunk.
// c(i, j) is at c + i c_row + j, a(i, p) at a + i a_row + p a_step, b(p, j) at b + j / kPanel b_panel + p b_row + j % kPanel.
template <class A>
struct Product {
  A* c;
  int64_t c_row;
  const A* a;
  int64_t a_row, a_step;
  const A* b;
  int64_t b_row, b_panel;
  int64_t rows, columns, depth;
  bool add;
};
template <class A>
void product(Isa isa, const Product<A>& p);

// to [rows, padded(columns)] = scale * from [rows, columns], whose rows are `stride` apart; what is padded is 0.
template <class A, class T>
void load(Isa isa, A* to, const T* from, int64_t stride, int64_t rows, int64_t columns, A scale);
// from [rows, padded(columns)] across, as a product takes it: from(j, d) goes to `to` + j / kPanel * kPanel padded(columns) + d
// kPanel + j % kPanel. Columns up to a multiple of kChunk are 0.
template <class A>
void transpose(Isa isa, A* to, const A* from, int64_t rows, int64_t columns);
// to(i, d) = from(i, d) scale(i) scales, or scales alone if `scale` is nullptr. Rows of `to` are `stride` apart, those of `from`
// padded(columns). Rounds to nearest even.
template <class A, class T>
void store(Isa isa, T* to, int64_t stride, const A* from, int64_t rows, int64_t columns, const A* scale, A scales);

// Which keys of a tile of scores its queries see. Row i sees the keys before min(keys, diagonal + i + 1).
struct AttentionMask {
  int64_t keys, diagonal;
  const int64_t* query_segments;  // of them, those of the row's own segment; nullptr: all
  const int64_t* key_segments;
  const uint8_t* keep;  // dropout of the weights, rows keep_row apart; nullptr: none
  int64_t keep_row;
  double keep_scale;
};

// The softmax of rows whose scores arrive in several tiles.
template <class A>
struct Softmax {
  A *largest, *sum;  // of each row: the largest score so far, and the sum of exp(score - largest)
  A* mixed;          // [rows, columns]: what earlier weights were summed up to, scaled to the new `largest`; nullptr: nothing yet
  int64_t columns;
};
// Turns scores [rows, padded(keys)], `row` apart, into weights exp(score - largest), dropped where `mask` says so.
template <class A>
void softmax(Isa isa, A* scores, int64_t row, int64_t rows, const AttentionMask& mask, const Softmax<A>& state);

// dot(i) = sum over d of a(i, d) b(i, d); rows padded(columns) apart.
template <class A>
void row_dots(Isa isa, A* dot, const A* a, const A* b, int64_t rows, int64_t columns);

// The backward: w = exp(score - logsumexp). Turns `scores` into the dropped w and `grads`, the gradients of the dropped w,
// into those of the scores: w (dropped grad - dot).
template <class A>
void softmax_backward(Isa isa, A* scores, A* grads, int64_t row, int64_t rows, const AttentionMask& mask, const A* logsumexp,
                      const A* dot);

}  // namespace zt::nn::tile
