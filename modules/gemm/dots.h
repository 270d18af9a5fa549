// GEMMs whose rows do not depend on each other.
#pragma once

#include <memory>

#include "zt/base/isa.h"
#include "zt/gemm/gemm.h"

namespace zt {

// Returns the provider "dots": fp32, bf16 and fp16 on the CPU, with sums in fp32. An element of the result is a dot product whose
// order of steps depends on their number only (dots_kernels.h). So the bits of a row depend neither on the other rows nor on how
// many there are: one row, a chunk of a prompt and a whole batch give equal numbers. Fast where the steps of both operands are
// contiguous, as in x W^T; others are copied first. `pairs`: use the instructions for bf16, with the same bits for numbers that
// are not subnormal. Throws Misuse if ZT_ISA is wrong (best_isa).
std::shared_ptr<const Gemm> make_dots_gemm(Isa isa, bool pairs);

}  // namespace zt
