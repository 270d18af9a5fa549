#include "zt/gemm/gemm_widen.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "zt/gemm/gemm.h"

namespace zt {

namespace {

// Sizes of a tile of c, and steps along k. The widened part of b has 1 MiB. If c has few rows it has half of that, to stay in the
// cache.
constexpr int64_t kTileRows = 1024, kTileColumns = 1024, kTileDepth = 256;
constexpr int64_t kShortRows = 256, kColumnsOfShortRows = 512;

// An fp32 buffer of a thread, which every tile overwrites. It outlives steps and is none of their tensors, so it is not allocated
// by LibTorch, whose allocations in a step are measured.
class WidenScratch {
 public:
  // Returns an uninitialised matrix [rows, columns]. Earlier ones are gone.
  at::Tensor matrix(int64_t rows, int64_t columns) {
    constexpr size_t kAlignment = 64;  // as LibTorch's own
    if (size_ < rows * columns) {
      memory_.reset();
      const size_t bytes = (static_cast<size_t>(rows * columns) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
      memory_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
      size_ = memory_ ? rows * columns : 0;
      if (!memory_) throw std::bad_alloc();
    }
    return at::from_blob(memory_.get(), {rows, columns}, at::kFloat);
  }
  // Returns an fp32 copy of `part` with the same layout, row-major or column-major.
  at::Tensor widened(const at::Tensor& part) {
    const bool is_transposed = blas_layout(part).transposed;
    const at::Tensor rows = is_transposed ? part.t() : part, wide = matrix(rows.size(0), rows.size(1));
    wide.copy_(rows);
    return is_transposed ? wide.t() : wide;
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  int64_t size_ = 0;
};

struct WidenTile {
  int64_t row, rows, column, columns;
  at::Tensor of(const at::Tensor& c) const { return c.narrow(0, row, rows).narrow(1, column, columns); }
};

// Computes sum = alpha a b + beta sum for the rows of a and the columns of b that belong to the tile.
void add_products(const at::Tensor& a, const at::Tensor& b, const WidenTile& tile, const at::Tensor& sum, double beta,
                  double alpha) {
  thread_local WidenScratch left, right;
  for (int64_t k = 0; k < a.size(1); k += kTileDepth) {
    const int64_t depth = std::min(kTileDepth, a.size(1) - k);
    sum.addmm_(left.widened(a.narrow(0, tile.row, tile.rows).narrow(1, k, depth)),
               right.widened(b.narrow(0, k, depth).narrow(1, tile.column, tile.columns)), k == 0 ? beta : 1, alpha);
  }
}

}  // namespace

void multiply_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) {
  thread_local WidenScratch sums;
  const bool is_sum = c.scalar_type() == at::kFloat;
  const int64_t columns = c.size(0) <= kShortRows ? kColumnsOfShortRows : kTileColumns;
  for (int64_t column = 0; column < c.size(1); column += columns) {
    for (int64_t row = 0; row < c.size(0); row += kTileRows) {
      const WidenTile tile{row, std::min(kTileRows, c.size(0) - row), column, std::min(columns, c.size(1) - column)};
      const at::Tensor part = tile.of(c);
      const at::Tensor sum = is_sum ? part : sums.matrix(tile.rows, tile.columns);
      if (!is_sum && beta != 0) sum.copy_(part);
      add_products(a, b, tile, sum, beta, alpha);
      if (!is_sum) part.copy_(sum);
    }
  }
}

}  // namespace zt
