// Products of 16-bit matrices on processors that have none: tiles are widened, multiplied in fp32 and rounded.
#include <ATen/ATen.h>

#include <algorithm>

#include "gemm.h"

namespace zt {

namespace {

// Of a tile of c, and of k. The widened part of b is 1 MiB; where few rows use it, half, to stay in the cache.
constexpr int64_t kRows = 1024, kColumns = 1024, kDepth = 256;
constexpr int64_t kFewRows = 256, kColumnsOfFewRows = 512;

// fp32 copies of a thread, overwritten by every tile.
class Scratch {
 public:
  // [rows, columns], with garbage in it.
  at::Tensor matrix(int64_t rows, int64_t columns) {
    if (!memory_.defined() || memory_.numel() < rows * columns) memory_ = at::empty({rows * columns}, at::kFloat);
    return memory_.narrow(0, 0, rows * columns).view({rows, columns});
  }
  // As `part` lies: rows stay rows.
  at::Tensor widened(const at::Tensor& part) {
    const bool is_transposed = blas_layout(part).transposed;
    const at::Tensor rows = is_transposed ? part.t() : part, wide = matrix(rows.size(0), rows.size(1));
    wide.copy_(rows);
    return is_transposed ? wide.t() : wide;
  }

 private:
  at::Tensor memory_;
};

struct Tile {
  int64_t row, rows, column, columns;
  at::Tensor of(const at::Tensor& c) const { return c.narrow(0, row, rows).narrow(1, column, columns); }
};

void add_products(const at::Tensor& a, const at::Tensor& b, const Tile& tile, const at::Tensor& sum, double beta, double alpha) {
  thread_local Scratch left, right;
  for (int64_t k = 0; k < a.size(1); k += kDepth) {
    const int64_t depth = std::min(kDepth, a.size(1) - k);
    sum.addmm_(left.widened(a.narrow(0, tile.row, tile.rows).narrow(1, k, depth)),
               right.widened(b.narrow(0, k, depth).narrow(1, tile.column, tile.columns)), k == 0 ? beta : 1, alpha);
  }
}

}  // namespace

bool has_products_of(at::ScalarType dtype) {
#if defined(__x86_64__)
  return dtype == at::kBFloat16 ? __builtin_cpu_supports("avx512bf16") : __builtin_cpu_supports("avx512fp16");
#else
  return true;
#endif
}

void multiply_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) {
  thread_local Scratch sums;
  const bool is_sum = c.scalar_type() == at::kFloat;
  const int64_t columns = c.size(0) <= kFewRows ? kColumnsOfFewRows : kColumns;
  for (int64_t column = 0; column < c.size(1); column += columns) {
    for (int64_t row = 0; row < c.size(0); row += kRows) {
      const Tile tile{row, std::min(kRows, c.size(0) - row), column, std::min(columns, c.size(1) - column)};
      const at::Tensor part = tile.of(c);
      const at::Tensor sum = is_sum ? part : sums.matrix(tile.rows, tile.columns);
      if (!is_sum && beta != 0) sum.copy_(part);
      add_products(a, b, tile, sum, beta, alpha);
      if (!is_sum) part.copy_(sum);
    }
  }
}

}  // namespace zt
