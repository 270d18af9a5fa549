// The rows of the other operand of a GEMM, in the form that the loops over panels read.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "packed/panel_kernels.h"

namespace zt::packed {

// Rows of floating-point numbers, each contiguous, on the CPU: fp32, bf16 or fp16.
struct NumberRows {
  const void* data;
  at::ScalarType dtype;
  int64_t row_stride;  // elements from one row to the next one
};
NumberRows number_rows(const at::Tensor& matrix, int64_t first);

// How the columns are divided: into `groups` groups, of which the last one may be shorter.
struct ColumnGroups {
  int64_t columns, padded, group, groups;

  int64_t columns_of(int64_t g) const { return g + 1 < groups ? group : padded - g * group; }
};

// The words of some rows: [groups][rows][steps], and the numbers of each group and row, [groups][rows].
class RowWords {
 public:
  // `most_rows`: the most rows that will be held. `zero_point`: as PackLayout's. `needs_terms`: there are minima.
  RowWords(PanelArithmetic arithmetic, const ColumnGroups& groups, int64_t most_rows, int zero_point, bool needs_terms);

  // Converts `rows` rows.
  void read(const PanelKernels& kernels, const NumberRows& from, int64_t rows);

  int64_t rows() const { return rows_; }
  int64_t steps_of(int64_t g) const { return groups_.columns_of(g) / columns_per_word_; }
  const uint32_t* words_of(int64_t g) const { return words_.get() + g * rows_ * (groups_.group / columns_per_word_); }
  const float* terms_of(int64_t g) const { return terms_.data() + g * rows_; }
  const float* scales_of(int64_t g) const { return scales_.data() + g * rows_; }
  const int32_t* starts_of(int64_t g) const { return starts_.data() + g * rows_; }
  // For `pairs`: the least biased exponent of a group's numbers that are not zero.
  uint32_t least_exponent_of(int64_t g) const { return least_exponents_[static_cast<size_t>(g)]; }

 private:
  // The words of a row in a group.
  uint32_t* words_at(int64_t row, int64_t g) {
    return words_.get() + g * rows_ * (groups_.group / columns_per_word_) + row * (groups_.columns_of(g) / columns_per_word_);
  }
  template <class T>
  void read_group(const NumberRows& from, int64_t row, int64_t g);
  void write_floats(const float* numbers, int64_t row, int64_t g);
  void write_bytes(const float* numbers, int64_t row, int64_t g);

  const PanelArithmetic arithmetic_;
  const ColumnGroups groups_;
  const int64_t columns_per_word_;
  const int zero_point_;
  const bool needs_terms_;
  int64_t rows_ = 0;
  std::unique_ptr<uint32_t[]> words_;
  std::vector<float> terms_;     // for `bytes`: scale of the row times the sum of its codes; else the sum of its numbers
  std::vector<float> scales_;    // of `bytes`
  std::vector<int32_t> starts_;  // of `bytes`
  std::vector<uint32_t> least_exponents_;
};

}  // namespace zt::packed
