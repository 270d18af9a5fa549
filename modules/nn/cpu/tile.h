// Loops on small matrices ("tiles") that stay in the cache. Attention consists of these loops. They are compiled for several
// instruction sets, which all give the same bits: a GEMM adds along the depth in ascending order, one fused multiply-add per
// step. The loops are single-threaded.
//
// A is the type of the arithmetic: float or double. T is the type of the tensors: float, double, c10::BFloat16 or c10::Half. What
// is only read may be int8_t, too.
#pragma once

#include <cstdint>

#include "zt/base/isa.h"

namespace zt::nn::tile {

constexpr int64_t kChunk = 16;  // the columns of a tile are padded to a multiple of this
constexpr int64_t kPanel = 32;  // columns of a GEMM that are computed in one pass over the depth

constexpr int64_t padded(int64_t n, int64_t to = kChunk) {
  return (n + to - 1) / to * to;
}

// A GEMM of tiles: c(i, j) = sum over p of a(i, p) b(p, j), plus the old c(i, j) if `add`. Requires that columns is a multiple of
// kChunk. Offsets: c(i, j) is at c + i * c_row + j, a(i, p) at a + i * a_row + p * a_step, and b(p, j) at
// b + j / kPanel * b_panel + p * b_row + j % kPanel.
template <class A>
struct TileGemm {
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
void multiply(Isa isa, const TileGemm<A>& p);

// The same sums for the keys or values of a cache, which are read where they are: kChunk tokens at each of `chunks`, the last of
// which may have fewer. `dim` is a multiple of kChunk. For few rows, which do not pay for a copy in the form of TileGemm.
//   multiply_keys: c(i, j) = sum over d < dim of a(i, d) key(j, d), for j < padded(tokens); key(j, d) is at
//   chunks[j / kChunk] + d * stride + j % kChunk. Columns from `tokens` on get any number.
//   multiply_values: c(i, d) = sum over j < tokens of a(i, j) value(j, d), plus the old c(i, d) if `add`; value(j, d) is at
//   chunks[j / kChunk] + j % kChunk * stride + d.
template <class A, class T>
struct ChunkGemm {
  A* c;
  int64_t c_row;
  const A* a;
  int64_t a_row;
  const T* const* chunks;
  int64_t stride;
  int64_t rows, tokens, dim;
  bool add;
};
template <class A, class T>
void multiply_keys(Isa isa, const ChunkGemm<A, T>& p);
template <class A, class T>
void multiply_values(Isa isa, const ChunkGemm<A, T>& p);

// Writes to [rows, padded(columns)] = scale * from [rows, columns]. Rows of `from` are `stride` apart. Padding is 0.
template <class A, class T>
void load(Isa isa, A* to, const T* from, int64_t stride, int64_t rows, int64_t columns, A scale);
// Writes to [rows, columns] = from [rows, columns] times scale(column), or times 1 if `scale` is null. Rows of `to` are `row`
// apart, rows of `from` `stride`.
template <class A, class T>
void load_columns(Isa isa, A* to, int64_t row, const T* from, int64_t stride, int64_t rows, int64_t columns, const A* scale);
// Transposes from [rows, padded(columns)] into the panels that TileGemm reads: from(j, d) goes to the address
// to + j / kPanel * kPanel * padded(columns) + d * kPanel + j % kPanel. For j from `rows` up to a multiple of kChunk, writes 0.
template <class A>
void transpose(Isa isa, A* to, const A* from, int64_t rows, int64_t columns);
// Writes to(i, d) = from(i, d) * scale(i) * scales, without scale(i) if `scale` is null. Rows of `to` are `stride` apart, rows of
// `from` padded(columns). Rounds to nearest even.
template <class A, class T>
void store(Isa isa, T* to, int64_t stride, const A* from, int64_t rows, int64_t columns, const A* scale, A scales);

// The visible keys of a tile of scores, and dropout. Row i (a query) sees keys from first[i] to before end[i].
struct AttentionMask {
  int64_t keys, first[kPanel], end[kPanel];
  const int64_t* query_segments;  // a row sees only keys of its own segment; null means that all have the same segment
  const int64_t* key_segments;
  const uint8_t* keep;  // dropout mask of the weights, rows keep_row apart; null means no dropout
  int64_t keep_row;
  double keep_scale;
};

// The state of a softmax over rows whose scores arrive in several tiles.
template <class A>
struct Softmax {
  A *largest, *sum;  // per row: the largest score so far, and the sum of exp(score - largest)
  A* mixed;  // [rows, columns]: the weighted sums of earlier tiles, rescaled to the new `largest`; null for the first tile
  int64_t columns;
};
// Turns scores [rows, padded(keys)] into weights exp(score - largest), with the dropout of `mask`, and updates `state`. Rows are
// `row` elements apart.
template <class A>
void softmax(Isa isa, A* scores, int64_t row, int64_t rows, const AttentionMask& mask, const Softmax<A>& state);

// Writes dot(i) = sum over d of a(i, d) b(i, d). Rows are padded(columns) elements apart.
template <class A>
void row_dots(Isa isa, A* dot, const A* a, const A* b, int64_t rows, int64_t columns);

// The backward of softmax. Let w = exp(score - logsumexp), and drop() apply the dropout of `mask`. Turns `scores` into drop(w).
// Turns `grads`, the gradients of drop(w), into the gradients of the scores: w * (drop(grad) - dot).
template <class A>
void softmax_backward(Isa isa, A* scores, A* grads, int64_t row, int64_t rows, const AttentionMask& mask, const A* logsumexp,
                      const A* dot);

}  // namespace zt::nn::tile
