#include "nonfinite_search.h"

#include <ATen/ops/isfinite.h>

namespace zt {

int64_t first_nonfinite_row(const at::Tensor& values) {
  if (values.numel() == 0) return -1;
  const int64_t rows = values.dim() == 0 ? 1 : values.size(0);
  const at::Tensor is_bad = values.detach().isfinite().reshape({rows, -1}).all(1).logical_not().cpu();
  return is_bad.any().item<bool>() ? is_bad.nonzero()[0].item<int64_t>() : -1;
}

}  // namespace zt
