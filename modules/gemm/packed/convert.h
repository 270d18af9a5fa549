// Converts between plain and packed matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include "packed/layout.h"
#include "packed/panel_kernels.h"

namespace zt::packed {

// Writes all bytes of `into`. Throws Fault if a number is not finite in fp32, or if its group's scale or minimum is too large for
// fp16.
void pack_matrix(const at::Tensor& weight, const PackedMatrix& into);

at::Tensor unpack_matrix(const PanelKernels& kernels, const PackedMatrix& matrix, at::ScalarType dtype);

// Reads groups of panels as numbers: scale * code, or fma(scale, code, minimum), in fp32.
class GroupReader {
 public:
  GroupReader(const PanelKernels& kernels, const PackLayout& layout, const uint8_t* bytes)
      : kernels_(kernels), layout_(layout), bytes_(bytes) {}

  // Returns the numbers of a group, [stored columns][16 rows]. Valid until the next call.
  const float* read(int64_t panel, int64_t g);

 private:
  const PanelKernels& kernels_;
  const PackLayout& layout_;
  const uint8_t* const bytes_;
  alignas(64) uint32_t words_[kMostColumns * kPanelRows];
  alignas(64) float numbers_[kMostColumns * kPanelRows];
};

}  // namespace zt::packed
