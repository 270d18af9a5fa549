// GEMMs in which one of m, n, k is small, as in training with few tokens per step.
#pragma once

#include <memory>

#include "zt/base/isa.h"
#include "zt/gemm/gemm.h"

namespace zt {

// Returns the provider "skinny": fp32, bf16 and fp16 on the CPU. Sums are in fp32, in a fixed order (skinny_kernels.h). The
// larger operand is read once, in its own layout. (Libraries first copy it into a packed form, which takes as long as a GEMM of
// few rows.) Correct for all sizes, fast for small m or small k. The bits of a row of the result do not depend on the other rows
// or on their number.
//
// fp32 GEMMs with m < 8 or k < 8 are limited by memory bandwidth. The provider "aten" does these, so they have its bits.
// Throws Misuse if ZT_ISA is wrong (best_isa).
std::shared_ptr<const Gemm> make_skinny_gemm(Isa isa = best_isa());

}  // namespace zt
