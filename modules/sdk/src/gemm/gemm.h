// The providers that need LibTorch only.
#pragma once

#include <memory>

#include "zt/gemm/gemm.h"

namespace zt {

std::shared_ptr<const Gemm> make_aten_gemm();
std::shared_ptr<const Gemm> make_cublas_gemm();

// Returns the provider that the choice in use has for a GEMM on the CPU.
const Gemm& chosen_gemm(const GemmShape& shape);

}  // namespace zt
