// HDF5 files in memory: libhdf5 builds and parses them and never opens a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "handle.h"
#include "sparse_memory.h"

namespace zt::ckpt {

// Where libhdf5's allocations go.
struct ImageLayout {
  int64_t user_block = 0;      // bytes before HDF5's own: 0 or a power of two from 512
  int64_t data_alignment = 8;  // of each dataset's data in the file
  int64_t metadata_block = 8;  // all else is put together in blocks of so many bytes
};

// Hdf5Session is held for all of these and for the file they return. What holds the bytes must outlive the file. Of no file does
// a reference lead to another: libhdf5 is refused any other name that it asks to open.

// A new HDF5 file that becomes `memory`. Its size is right once the file is closed.
Handle create_image(SparseMemory& memory, const ImageLayout& layout);
// The file that create_image left, to change values in place.
Handle change_image(SparseMemory& memory);
// Fault with libhdf5's message when the bytes are no HDF5 file.
Handle read_image(std::span<const std::byte> bytes);

}  // namespace zt::ckpt
