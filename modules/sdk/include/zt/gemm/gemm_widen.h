// GEMMs of 16-bit matrices in fp32, on processors or for results that libraries have none for.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt {

// c = alpha a b + beta c for a and b of 16 bits and c of the same dtype or fp32: tiles are widened, multiplied in fp32 and
// rounded once. Arguments as for Gemm::run. The fp32 copies belong to the calling thread, which keeps at most 6 MiB, whatever the
// shape. Sums go over k in steps of a fixed length, so their order depends on the shape only.
void multiply_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha);

}  // namespace zt
