// Registers the providers of this module with zt::gemm.
#pragma once

namespace zt {

// Registers the providers "mkl", "skinny" and "onednn" if they can be used here. Makes the rule (rule.h) the default choice.
// Calls after the first one have no effect. Thread-safe. Throws Misuse if ZT_ISA is wrong.
void register_gemm_providers();

}  // namespace zt
