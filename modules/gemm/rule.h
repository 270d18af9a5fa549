// The rule that chooses the provider of each group of GEMMs on a given processor.
#pragma once

#include <set>
#include <string>

#include "processor.h"
#include "zt/gemm/gemm_choice.h"

namespace zt {

// Returns the provider of each group. A pure function. `available` holds the names of the providers that can be used; the rule
// chooses among these and "aten", which always exists.
//
// - Without MKL: "aten" for all groups.
// - fp64: "aten".
// - fp32: "blis" on a processor of AMD, where MKL is about 10 % slower; else "aten".
// - bf16 into fp32 on a processor of AMD with bf16 instructions: "brgemm".
// - Other 16-bit types into fp32: "mkl", which uses 16-bit instructions if the processor has them; "aten" would multiply widened
// tiles.
// - fp16, and bf16 on a processor without bf16 instructions: "mkl". LibTorch's oneDNN emulates them, far slower than fp32.
// - Few rows on a processor with AVX-512: "skinny" for fp32, and for 16-bit types for which the processor has no instructions.
GemmChoice gemm_rule(const Processor& processor, const std::set<std::string>& available);

}  // namespace zt
