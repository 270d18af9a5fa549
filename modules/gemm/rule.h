// The rule that chooses a GEMM provider by the processor and the group of the GEMM.
#pragma once

#include <set>
#include <string>

#include "processor.h"
#include "zt/gemm/gemm_choice.h"

namespace zt {

// Returns the provider that the rule names for each group. A pure function. `available` holds the names of the providers that
// exist; the rule names no other ones, and "aten" exists always.
//
// - Without MKL: "aten" for all.
// - fp32 and fp64: "aten".
// - 16 bits into fp32: "mkl", which uses the instructions that exist, while "aten" multiplies widened tiles.
// - fp16, and bf16 on a processor without bf16 instructions: "mkl". LibTorch's oneDNN emulates them at a fraction of fp32's
// speed.
// - Few rows, on a processor with AVX-512: "skinny" for fp32 and for 16-bit types without instructions of their own.
GemmChoice gemm_rule(const Processor& processor, const std::set<std::string>& available);

}  // namespace zt
