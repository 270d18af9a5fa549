// HDF5 files in memory: libhdf5 builds and parses them and never opens a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "handle.h"
#include "sparse_memory.h"
#include "tree.h"

namespace zt::ckpt {

// Where libhdf5's allocations lie in the file.
struct ImageLayout {
  int64_t user_block = 0;      // bytes before HDF5's own bytes: 0, or a power of two of at least 512
  int64_t data_alignment = 8;  // each dataset's data begin at a multiple of this many bytes
  int64_t metadata_block = 8;  // everything else is allocated in blocks of this many bytes
  GroupLinks root = {};        // the links that the root group will have
};

// Requires an Hdf5Session for each of these calls and as long as the returned file is open. The owner of the bytes must outlive
// that file. References to other files do not work: the driver refuses to open any other name.

// Makes a new HDF5 file in `memory`. memory.bytes() is the file's size after the file is closed.
Handle create_image(SparseMemory& memory, const ImageLayout& layout);
// Opens the file that create_image made, to change values in place.
Handle change_image(SparseMemory& memory);
// Opens a file for reading. Throws a Fault with libhdf5's message if the bytes are no HDF5 file.
Handle read_image(std::span<const std::byte> bytes);

}  // namespace zt::ckpt
