// Products in which one of m, n, k is small, as in training on few tokens a step.
#pragma once

#include <memory>

#include "zt/base/isa.h"
#include "zt/gemm/gemm.h"

namespace zt {

// The provider "skinny": fp32, bf16 and fp16 on the CPU, sums in fp32 in an order of its own (skinny_kernels.h). The larger
// operand is read once, in its own layout; libraries pack it first, which costs as much as multiplying by few rows. Right for all
// sizes, fast for small m or small k. A row of the result has the same bits whatever the other rows are, and how many.
//
// Products of fp32 with fewer than 8 rows or steps wait for memory only; they are made by "aten", with the bits of that.
std::shared_ptr<const Gemm> make_skinny_gemm(Isa isa = best_isa());

}  // namespace zt
