// GEMMs of 16-bit matrices in fp32, for processors and result types that no library supports.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt {

// Computes c = alpha a b + beta c for a and b of 16 bits, and c of the same dtype or fp32. Tiles are widened, multiplied in fp32
// and rounded once. The arguments are those of Gemm::run. The calling thread keeps the fp32 copies: at most 6 MiB for every
// shape. Sums go over k in steps of a fixed length, so their order depends on the shape only.
void multiply_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha);

}  // namespace zt
