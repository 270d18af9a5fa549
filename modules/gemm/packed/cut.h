// Cuts a packed matrix without changing its values.
#pragma once

#include <span>

#include "zt/base/box.h"
#include "zt/gemm/packed.h"

namespace zt::packed {

// Returns the matrix of these rows of `whole`, range after range, and of these columns. Throws Misuse if it cannot have the same
// values: if the columns are no whole groups (of `panels`: no whole pairs), or for nf4 if a range of rows does not begin and end
// with a block of 256 groups or columns are left out.
PackedMatrix cut_matrix(const PackedMatrix& whole, std::span<const Share> rows, Share columns);

}  // namespace zt::packed
