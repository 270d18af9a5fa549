// Reads matrices that bitsandbytes has stored as nf4 (zt/gemm/nf4.h).
#pragma once

#include <span>

#include "zt/gemm/nf4.h"

namespace zt::packed {

bool can_join_nf4(std::span<const int64_t> rows, int64_t columns, bool is_nested);
void import_nf4(std::span<const Nf4Tensors> parts, const PackedMatrix& into);

}  // namespace zt::packed
