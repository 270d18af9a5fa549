// The providers that LibTorch brings.
#pragma once

#include <memory>

#include "zt/gemm.h"

namespace zt {

std::shared_ptr<const Gemm> make_aten_gemm();
std::shared_ptr<const Gemm> make_mkl_gemm();  // nullptr where LibTorch was built without MKL
std::shared_ptr<const Gemm> make_cublas_gemm();

// Whether this processor multiplies matrices of this 16-bit dtype itself; else libraries widen them first.
bool has_products_of(at::ScalarType dtype);

// c = alpha a b + beta c, a and b of 16 bits, as products in fp32 of widened tiles. The fp32 copies are the calling thread's,
// which keeps at most 6 MiB, whatever the shape. Sums go over k in steps of a fixed length, so their order depends on the shape
// only.
void multiply_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha);

// The provider in use for a product on the CPU.
const Gemm& chosen_gemm(const GemmShape& shape);

}  // namespace zt
