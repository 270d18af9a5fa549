// Checks the structure of an HDF5 file before libhdf5 parses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zt::ckpt {

// Which groups may have their links outside of their object headers, in a fractal heap, which libhdf5 1.10 reads without checking
// all that it finds there: only groups with more links than TreeWriter keeps compact, or any group, as in older files.
enum class DenseGroups : uint8_t { large_only, any };

// Walks the superblock and the object headers that hard links reach, and checks that they lie in the file, fit their checksums
// and have their links and attributes in them. Throws a Fault that says what is wrong and at which byte. `user_block`: the number
// of bytes before HDF5's own, on which its addresses count. What lies in old dense groups is not walked.
void check_structure(std::span<const std::byte> file, int64_t user_block, DenseGroups dense);

}  // namespace zt::ckpt
