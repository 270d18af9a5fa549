// The providers that LibTorch brings on its own.
#pragma once

#include <memory>

#include "zt/gemm/gemm.h"

namespace zt {

std::shared_ptr<const Gemm> make_aten_gemm();
std::shared_ptr<const Gemm> make_cublas_gemm();

// The provider in use for a GEMM on the CPU.
const Gemm& chosen_gemm(const GemmShape& shape);

}  // namespace zt
