// What a dataset or attribute of a file holds, read with suspicion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "handle.h"
#include "zt/base/value.h"

namespace zt::ckpt {

// Hdf5Session is held for these. Faults say what is wrong, not where.

// `take` is asked for leave with the number of bytes before they are allocated, and throws where a file cannot hold so many.
// `read` reads all elements, in the given type.
struct Stored {
  hid_t type, space;
  std::function<void(int64_t bytes)> take;
  std::function<void(hid_t type, void* to)> read;
};

// The bytes of a scalar or a list as they lie in the file.
std::vector<std::byte> read_bytes(const Stored& stored);
// What to_plain made this of.
Value from_plain(const Stored& stored);
// The bytes of strings in a row: each `size` long, without NUL at its end.
std::vector<std::string> split_strings(const std::vector<std::byte>& bytes, size_t size);
// True for strings of one length as this project writes them.
bool is_string_type(hid_t type);

}  // namespace zt::ckpt
