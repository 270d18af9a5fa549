// Registers the providers of this module with zt::gemm.
#pragma once

namespace zt {

// Registers the providers "skinny" and "dots", where LibTorch has MKL "mkl", where the library is installed "blis", and where the
// processor has bf16 instructions "brgemm". Makes the rule (rule.h) the default choice.
// Calls after the first one have no effect. Thread-safe. Throws Misuse if ZT_ISA is wrong.
void register_gemm_providers();

}  // namespace zt
