// The providers that LibTorch brings.
#pragma once

#include <memory>

#include "zt/gemm.h"

namespace zt {

std::shared_ptr<const Gemm> make_aten_gemm();
std::shared_ptr<const Gemm> make_mkl_gemm();  // nullptr where LibTorch was built without MKL
std::shared_ptr<const Gemm> make_cublas_gemm();

// The provider in use for a product on the CPU.
const Gemm& chosen_gemm(const GemmShape& shape);

}  // namespace zt
