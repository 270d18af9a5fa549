#include "skinny.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "skinny_kernels.h"

namespace zt {

namespace {

using namespace skinny;

constexpr int64_t kLeast = 8;        // fp32 GEMMs with fewer rows or steps are left to "aten"
constexpr int64_t kPartRows = 32;    // rows of c that are computed together where c is the largest matrix
constexpr int64_t kPackedRows = 96;  // up to this many rows, the whole left operand is always packed first
constexpr int64_t kPage = 4096;      // bytes; the processor's prefetcher does not cross a page
constexpr int64_t kGrain = 1 << 18;  // fewest multiply-adds per thread

int64_t parts(int64_t size, int64_t part) {
  return (size + part - 1) / part;
}
int64_t grain(int64_t work) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work));
}

// c [m, n] = alpha a b + beta c.
template <class T>
struct GemmTask {
  Isa isa;
  OperandLines<T> a, b;
  int64_t m, n, k;
  int64_t block;  // steps per block
  float* c;
  int64_t c_row;
  float alpha, beta;
};

// Returns the left operand, widened and packed: blocks of steps one after the other, each in panels of kRows rows.
template <class T>
at::Tensor pack_left(const GemmTask<T>& task) {
  const int64_t rows = parts(task.m, kRows) * kRows;
  at::Tensor packed = at::empty({rows * task.k}, at::kFloat);
  auto* to = packed.mutable_data_ptr<float>();
  at::parallel_for(0, parts(task.k, task.block), grain(rows * task.block), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin * task.block; p < std::min(end * task.block, task.k); p += task.block) {
      const int64_t depth = std::min(task.block, task.k - p);
      for (int64_t i = 0; i < task.m; i += kRows) {
        pack<kRows>(task.isa, to + p * rows + i * depth, task.a.at(i, p), std::min(kRows, task.m - i), depth);
      }
    }
  });
  return packed;
}

// A part of b that is multiplied while the next part is prefetched: columns [j, j + columns), steps [p, p + depth). It consists
// of long runs of memory and is small enough to stay in the second-level cache.
template <class T>
struct CacheRegion {
  const GemmTask<T>& task;
  int64_t j, columns, p, depth;

  int64_t tiles() const { return parts(task.m, kRows) * parts(columns, kColumns) * parts(depth, task.block); }
  Prefetcher make_prefetcher(int64_t tiles) const {
    const OperandLines<T> from = task.b.at(j, p);
    constexpr int64_t kSize = sizeof(T);
    if (from.step == 1) return {from.data, from.line * kSize, columns, depth * kSize, tiles, task.block};
    return {from.data, from.step * kSize, depth, columns * kSize, tiles, task.block};
  }
};

template <class T>
void multiply_region(const CacheRegion<T>& region, const float* left, Prefetcher prefetcher) {
  const GemmTask<T>& task = region.task;
  alignas(64) float right[kDepth * kColumns];
  for (int64_t p = region.p; p < region.p + region.depth; p += task.block) {
    const int64_t depth = std::min(task.block, region.p + region.depth - p);
    const float* rows = left + p * parts(task.m, kRows) * kRows;
    for (int64_t j = region.j; j < region.j + region.columns; j += kColumns) {
      const int64_t columns = std::min(kColumns, region.j + region.columns - j);
      pack<kColumns>(task.isa, right, task.b.at(j, p), columns, depth);
      const float beta = p == 0 ? task.beta : 1;
      multiply(task.isa, {rows, right, task.m, columns, depth, task.c + j, task.c_row, task.alpha, beta}, prefetcher);
    }
  }
}

// Computes the columns [begin, end) of c.
template <class T>
void multiply_columns(const GemmTask<T>& task, const float* left, int64_t begin, int64_t end) {
  const bool is_transposed = task.b.step == 1;
  constexpr int64_t kLong = kPage / sizeof(T);
  const int64_t width = is_transposed ? kColumns : kLong / kColumns * kColumns, length = is_transposed ? kLong : task.block;
  const auto region_at = [&](int64_t j, int64_t p) {
    return CacheRegion<T>{task, j, std::min(width, end - j), p, std::min(length, task.k - p)};
  };
  for (int64_t j = begin; j < end; j += width) {
    for (int64_t p = 0; p < task.k; p += length) {
      const CacheRegion<T> region = region_at(j, p);
      Prefetcher prefetcher;
      if (p + length < task.k) prefetcher = region_at(j, p + length).make_prefetcher(region.tiles());
      else if (j + width < end) prefetcher = region_at(j + width, 0).make_prefetcher(region.tiles());
      multiply_region(region, left, prefetcher);
    }
  }
}

template <class T>
void multiply_by_columns(const GemmTask<T>& task) {
  const at::Tensor packed = pack_left(task);
  const auto* left = packed.const_data_ptr<float>();
  at::parallel_for(0, parts(task.n, kColumns), grain(task.m * task.k * kColumns), [&](int64_t begin, int64_t end) {
    multiply_columns(task, left, begin * kColumns, std::min(end * kColumns, task.n));
  });
}

// Computes rows [i, i + rows) and columns [j, j + columns) of c. Requires k <= kDepth. Prefetches the next rows of c.
template <class T>
void multiply_part(const GemmTask<T>& task, const float* right, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  alignas(64) float left[kDepth * kPartRows];
  for (int64_t p = 0; p < task.k; p += task.block) {
    const int64_t depth = std::min(task.block, task.k - p);
    for (int64_t r = 0; r < rows; r += kRows) {
      pack<kRows>(task.isa, left + p * kPartRows + r * depth, task.a.at(i + r, p), std::min(kRows, rows - r), depth);
    }
  }
  float* c = task.c + i * task.c_row + j;
  const int64_t tiles = parts(rows, kRows) * parts(columns, kColumns), size = sizeof(float);
  Prefetcher prefetcher(c + rows * task.c_row, task.c_row * size, std::min(kPartRows, task.m - i - rows), columns * size, tiles,
                        task.k);
  for (int64_t panel = 0; panel < columns; panel += kColumns) {
    for (int64_t p = 0; p < task.k; p += task.block) {
      const float *x = left + p * kPartRows, *y = right + (j + panel) * task.k + p * kColumns;
      const int64_t width = std::min(kColumns, columns - panel), depth = std::min(task.block, task.k - p);
      multiply(task.isa, {x, y, rows, width, depth, c + panel, task.c_row, task.alpha, p == 0 ? task.beta : 1}, prefetcher);
    }
  }
}

template <class T>
void multiply_by_rows(const GemmTask<T>& task) {
  const at::Tensor packed = at::empty({parts(task.n, kColumns) * kColumns * task.k}, at::kFloat);
  auto* right = packed.mutable_data_ptr<float>();
  at::parallel_for(0, parts(task.n, kColumns), grain(task.k * kColumns), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin * kColumns; j < std::min(end * kColumns, task.n); j += kColumns) {
      pack<kColumns>(task.isa, right + j * task.k, task.b.at(j, 0), std::min(kColumns, task.n - j), task.k);
    }
  });
  constexpr int64_t kWidth = kPage / sizeof(float) / kColumns * kColumns;
  at::parallel_for(0, parts(task.m, kPartRows), grain(task.n * task.k * kPartRows), [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(end * kPartRows, task.m);
    for (int64_t j = 0; j < task.n; j += kWidth) {
      for (int64_t i = begin * kPartRows; i < last; i += kPartRows) {
        multiply_part(task, right, i, std::min(kPartRows, last - i), j, std::min(kWidth, task.n - j));
      }
    }
  });
}

template <class T>
void multiply(Isa isa, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) {
  const BlasLayout left = blas_layout(a), right = blas_layout(b);
  const OperandLines<T> rows{a.const_data_ptr<T>(), left.transposed ? 1 : left.ld, left.transposed ? left.ld : 1};
  const OperandLines<T> columns{b.const_data_ptr<T>(), right.transposed ? right.ld : 1, right.transposed ? 1 : right.ld};
  // With this block, two regions of b and a part of c fit into the second-level cache.
  const int64_t block = right.transposed ? kDepth : kDepth / 2;
  const GemmTask<T> task{isa,
                         rows,
                         columns,
                         c.size(0),
                         c.size(1),
                         a.size(1),
                         block,
                         c.mutable_data_ptr<float>(),
                         blas_layout(c).ld,
                         static_cast<float>(alpha),
                         static_cast<float>(beta)};
  if (task.k <= kDepth && task.m > kPackedRows) multiply_by_rows(task);
  else multiply_by_columns(task);
}

class SkinnyGemm final : public Gemm {
 public:
  explicit SkinnyGemm(Isa isa) : isa_(isa) {}

  bool takes(at::DeviceType device, at::ScalarType dtype) const override {
    return device == at::kCPU && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
  }

  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    if (a.scalar_type() == at::kFloat && std::min(a.size(0), a.size(1)) < kLeast) {
      find_gemm("aten").run(a, b, c, beta, alpha);
    } else if (c.scalar_type() == at::kFloat) {
      multiply_into(a, b, c, beta, alpha);
    } else {
      // Round c once, from the fp32 sum.
      const at::Tensor sum = beta == 0 ? at::empty(c.sizes(), at::kFloat) : c.to(at::kFloat).contiguous();
      multiply_into(a, b, sum, beta, alpha);
      c.copy_(sum);
    }
  }

 private:
  void multiply_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const {
    if (a.scalar_type() == at::kFloat) multiply<float>(isa_, a, b, c, beta, alpha);
    else if (a.scalar_type() == at::kHalf) multiply<c10::Half>(isa_, a, b, c, beta, alpha);
    else multiply<c10::BFloat16>(isa_, a, b, c, beta, alpha);
  }

  Isa isa_;
};

}  // namespace

std::shared_ptr<const Gemm> make_skinny_gemm(Isa isa) {
  return std::make_shared<SkinnyGemm>(isa);
}

}  // namespace zt
