// Makes the providers of this module known to zt::gemm.
#pragma once

namespace zt {

// Registers "skinny" and, where LibTorch has MKL, "mkl", and makes the rule (rule.h) the default choice. Only the first call
// does something. Thread-safe.
void register_gemm_providers();

}  // namespace zt
