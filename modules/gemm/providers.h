// Makes the providers of this module known to zt::gemm.
#pragma once

namespace zt {

// Registers "mkl", "skinny" and "onednn", those that can be used here, and makes the rule (rule.h) the default choice. Only the
// first call does something. Thread-safe.
void register_gemm_providers();

}  // namespace zt
