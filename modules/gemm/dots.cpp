#include "dots.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <type_traits>

#include "dots_kernels.h"
#include "zt/base/float16.h"

namespace zt {

namespace dots {

namespace {

constexpr int64_t kPartRows = 192;   // rows that are multiplied together: a block of them stays in the second-level cache
constexpr int64_t kFewRows = 16;     // all blocks of so many rows stay there
constexpr int64_t kGrain = 1 << 16;  // fewest multiply-adds per task

// c [m, n] = alpha a b + beta c. Rows of a and columns of b are contiguous. T is what the loops read, S what the operands hold,
// and C what the result holds: float, or for at most kFewRows rows S, to which the sums are rounded once.
template <class T, class S, class C = float>
class DotsCall {
 public:
  DotsCall(Isa isa, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha)
      : isa_(isa),
        a_(data_of(a)),
        a_row_(a.stride(0)),
        b_(data_of(b)),
        b_column_(b.stride(1)),
        m_(c.size(0)),
        n_(c.size(1)),
        k_(a.size(1)),
        c_(static_cast<C*>(c.mutable_data_ptr())),
        c_row_(blas_layout(c).ld),
        alpha_(static_cast<float>(alpha)),
        beta_(static_cast<float>(beta)),
        left_(at::empty({std::min(m_, kPartRows) * (k_ / kDepth * kDepth + padded(k_ % kDepth)) * int64_t{sizeof(T)}},
                        at::kByte)) {}

  void run() {
    for (int64_t i = 0; i < m_; i += kPartRows) {
      const int64_t rows = std::min(kPartRows, m_ - i);
      pack_left(i, rows);
      if constexpr (!std::is_same_v<C, float>) {
        for_groups(rows, k_, [&](int64_t j) { multiply_rounded(rows, j); });
      } else {
        const int64_t depth = rows <= kFewRows ? k_ : kDepth;
        for (int64_t p = 0; p < k_; p += depth) {
          const int64_t end = std::min(p + depth, k_);
          for_groups(rows, end - p, [&](int64_t j) { multiply_blocks(i, rows, j, p, end); });
        }
      }
    }
  }

 private:
  static const S* data_of(const at::Tensor& operand) { return static_cast<const S*>(operand.const_data_ptr()); }

  static void prepare(T* to, const S* from, int64_t depth) {
    if constexpr (std::is_same_v<T, float> && std::is_same_v<S, Bf16>) {
      widen(to, from, depth);
    } else {
      std::copy_n(from, depth, to);
      std::fill(to + depth, to + padded(depth), T(0));
    }
  }

  T* left(int64_t p, int64_t rows) { return static_cast<T*>(left_.mutable_data_ptr()) + p * rows; }

  // Packs rows of a: blocks of steps one after the other.
  void pack_left(int64_t i, int64_t rows) {
    at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / k_), [&](int64_t begin, int64_t end) {
      for (int64_t p = 0; p < k_; p += kDepth) {
        const int64_t depth = std::min(kDepth, k_ - p);
        for (int64_t row = begin; row < end; ++row)
          prepare(left(p, rows) + row * padded(depth), a_ + (i + row) * a_row_ + p, depth);
      }
    });
  }

  // Calls body(j) for the first column of each group of kMostColumns.
  template <class Body>
  void for_groups(int64_t rows, int64_t depth, const Body& body) {
    const int64_t groups = (n_ + kMostColumns - 1) / kMostColumns, work = rows * depth * kMostColumns;
    at::parallel_for(0, groups, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) body(group * kMostColumns);
    });
  }

  // Adds the steps [first, last) of a group of columns.
  void multiply_blocks(int64_t i, int64_t rows, int64_t j, int64_t first, int64_t last) {
    for (int64_t p = first; p < last; p += kDepth) multiply_group(rows, j, p, c_ + i * c_row_ + j, c_row_);
  }

  // Computes a group of columns of the result, of all rows.
  void multiply_rounded(int64_t rows, int64_t j) {
    float sums[kFewRows * kMostColumns];
    const int64_t columns = std::min(kMostColumns, n_ - j);
    const auto with_result = [&](const auto& body) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t k = 0; k < columns; ++k) body(sums[row * kMostColumns + k], c_[row * c_row_ + j + k]);
      }
    };
    if (beta_ != 0) with_result([](float& sum, C c) { sum = zt::widen(c); });
    for (int64_t p = 0; p < k_; p += kDepth) multiply_group(rows, j, p, sums, kMostColumns);
    with_result([](float sum, C& c) { c = narrow<C>(sum); });
  }

  // Adds a block of steps of a group of columns to c, whose rows are `c_row` apart.
  void multiply_group(int64_t rows, int64_t j, int64_t p, float* c, int64_t c_row) {
    const int64_t depth = std::min(kDepth, k_ - p), columns = std::min(kMostColumns, n_ - j);
    DotTask<T> task{left(p, rows), padded(depth), rows, nullptr, padded(depth), columns,
                    padded(depth), nullptr,       c,    c_row,   alpha_,        p == 0 ? beta_ : 1};
    alignas(64) T right[kMostColumns * kDepth];
    if (std::is_same_v<T, S> && depth % kStep == 0) {
      task.w = reinterpret_cast<const T*>(b_ + j * b_column_ + p);
      task.w_row = b_column_;
      if (p + kDepth < k_) task.next = task.w + kDepth;
      else if (j + 2 * kMostColumns <= n_) task.next = reinterpret_cast<const T*>(b_ + (j + kMostColumns) * b_column_);
    } else {
      for (int64_t column = 0; column < columns; ++column)
        prepare(right + column * padded(depth), b_ + (j + column) * b_column_ + p, depth);
      task.w = right;
    }
    if constexpr (std::is_same_v<T, Bf16>) multiply(task);
    else multiply(isa_, task);
  }

  const Isa isa_;
  const S* const a_;
  const int64_t a_row_;
  const S* const b_;
  const int64_t b_column_, m_, n_, k_;
  C* const c_;
  const int64_t c_row_;
  const float alpha_, beta_;
  at::Tensor left_;  // bytes
};

class DotsGemm final : public Gemm {
 public:
  DotsGemm(Isa isa, bool pairs) : isa_(isa), pairs_(pairs && isa == Isa::avx512) {}

  bool takes(at::DeviceType device, at::ScalarType dtype) const override {
    return device == at::kCPU && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
  }

  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    const at::Tensor rows = a.stride(1) == 1 ? a : a.contiguous(), columns = b.stride(0) == 1 ? b : b.t().contiguous().t();
    if (c.scalar_type() == at::kFloat) return multiply_into(rows, columns, c, beta, alpha);
    if (c.size(0) <= kFewRows) return multiply_few(rows, columns, c, beta, alpha);
    // Round c once, from the fp32 sum.
    const at::Tensor sum = beta == 0 ? at::empty(c.sizes(), at::kFloat) : c.to(at::kFloat).contiguous();
    multiply_into(rows, columns, sum, beta, alpha);
    c.copy_(sum);
  }

 private:
  void multiply_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const {
    if (a.scalar_type() == at::kFloat) DotsCall<float, float>(isa_, a, b, c, beta, alpha).run();
    else if (a.scalar_type() == at::kHalf) DotsCall<float, c10::Half>(isa_, a, b, c, beta, alpha).run();
    else if (pairs_) DotsCall<Bf16, Bf16>(isa_, a, b, c, beta, alpha).run();
    else DotsCall<float, Bf16>(isa_, a, b, c, beta, alpha).run();
  }

  void multiply_few(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const {
    if (a.scalar_type() == at::kHalf) DotsCall<float, c10::Half, c10::Half>(isa_, a, b, c, beta, alpha).run();
    else if (pairs_) DotsCall<Bf16, Bf16, c10::BFloat16>(isa_, a, b, c, beta, alpha).run();
    else DotsCall<float, Bf16, c10::BFloat16>(isa_, a, b, c, beta, alpha).run();
  }

  const Isa isa_;
  const bool pairs_;
};

}  // namespace

}  // namespace dots

std::shared_ptr<const Gemm> make_dots_gemm(Isa isa, bool pairs) {
  return std::make_shared<dots::DotsGemm>(isa, pairs);
}

}  // namespace zt
