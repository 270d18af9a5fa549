// The kernels of packed matrices (zt/gemm/packed.h).
#pragma once

#include <memory>

#include "zt/base/isa.h"
#include "zt/gemm/packed.h"

namespace zt {

// Returns the kernels for an instruction set that this processor has. `has_vnni` and `has_bf16`: the processor has the extensions
// AVX512_VNNI and AVX512_BF16. The bits of all results are the same with and without them.
std::shared_ptr<const PackedKernels> make_packed_kernels(Isa isa, bool has_vnni, bool has_bf16);

}  // namespace zt
