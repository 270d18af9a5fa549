// The two GEMMs of packed matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include "packed/layout.h"
#include "packed/panel_kernels.h"

namespace zt::packed {

// out [m, rows] = x [m, columns] W^T plus the addends.
void multiply(const PanelKernels& kernels, const at::Tensor& x, const PackedMatrix& w, const at::Tensor& out,
              Activations activations, const GemmAddends& addends);
// dx [m, columns] = dy [m, rows] W.
void multiply_transposed(const PanelKernels& kernels, const at::Tensor& dy, const PackedMatrix& w, const at::Tensor& dx);

}  // namespace zt::packed
