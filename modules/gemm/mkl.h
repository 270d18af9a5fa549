// GEMMs of bf16 and fp16 matrices by the MKL inside LibTorch, with sums in fp32.
#pragma once

#include <memory>

#include "zt/gemm/gemm.h"

namespace zt {

// Returns the provider "mkl"; null where LibTorch was built without MKL.
std::shared_ptr<const Gemm> make_mkl_gemm();

}  // namespace zt
