#include <cmath>

#include "tile.h"
#include "tile_forms.h"

namespace zt::nn::tile {

namespace {

enum class Side : uint8_t { along, across };  // neighbours of `a` in memory are steps of the depth (along) or rows (across)

template <int kRows, int kColumns, Side side, class A>
ZT_INLINE void block(const TileGemm<A>& p, int64_t i, int64_t j) {
  const int64_t row = side == Side::along ? p.a_row : 1, step = side == Side::along ? 1 : p.a_step;
  const A* a = p.a + i * row;
  const A* b = p.b + j / kPanel * p.b_panel + j % kPanel;
  A* c = p.c + i * p.c_row + j;
  A sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kColumns; ++k) sums[r][k] = p.add ? c[r * p.c_row + k] : A(0);
  }
  for (int64_t d = 0; d < p.depth; ++d, a += step, b += p.b_row) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const A x = a[r * row];
      for (int k = 0; k < kColumns; ++k) sums[r][k] = std::fma(x, b[k], sums[r][k]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kColumns; ++k) c[r * p.c_row + k] = sums[r][k];
  }
}

// Computes all rows from row i on of one column of blocks, in blocks as high as possible.
template <int kRows, int kColumns, Side side, class A>
ZT_INLINE void block_column(const TileGemm<A>& p, int64_t i, int64_t j) {
  for (; i + kRows <= p.rows; i += kRows) block<kRows, kColumns, side>(p, i, j);
  if constexpr (kRows > 1) block_column<kRows / 2, kColumns, side>(p, i, j);
}

template <int kRows, int kColumns, Side side, class A>
ZT_INLINE void all_blocks(const TileGemm<A>& p) {
  int64_t j = 0;
  for (; j + kColumns <= p.columns; j += kColumns) block_column<kRows, kColumns, side>(p, 0, j);
  if constexpr (kColumns > kChunk) {
    if (j < p.columns) block_column<kRows, kChunk, side>(p, 0, j);
  }
}

}  // namespace

template <class A>
void multiply(Isa isa, const TileGemm<A>& p) {
  run(
      isa, [p]<class F>(F) __attribute__((always_inline)) {
        constexpr int kColumns = F::kBytes / static_cast<int>(sizeof(A));
        if (p.a_row == 1) all_blocks<F::kRows, kColumns, Side::across>(p);
        else all_blocks<F::kRows, kColumns, Side::along>(p);
      });
}

template void multiply(Isa, const TileGemm<float>&);
template void multiply(Isa, const TileGemm<double>&);

}  // namespace zt::nn::tile
