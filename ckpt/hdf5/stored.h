// Reads the content of a dataset or attribute, and checks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "handle.h"
#include "zt/base/value.h"

namespace zt::ckpt {

// Requires an Hdf5Session. Throws a Fault that says what is wrong; the caller adds the place.

// A dataset or attribute. `take` is called with a number of bytes before they are allocated; it throws if the file cannot hold
// that many. `read` reads all elements, converted to the given type.
struct StoredData {
  hid_t type, space;
  std::function<void(int64_t bytes)> take;
  std::function<void(hid_t type, void* to)> read;
};

// Returns the bytes of a scalar or a list as they lie in the file; none for a null dataset.
std::vector<std::byte> read_bytes(const StoredData& stored);
// Returns the value that encode_value was given.
Value decode_value(const StoredData& stored);
// Splits an array of strings of `size` bytes each, and removes the NULs at their ends.
std::vector<std::string> split_strings(const std::vector<std::byte>& bytes, size_t size);
// True for the type of fixed-length strings that encode_value and encode_strings make.
bool is_string_type(hid_t type);

}  // namespace zt::ckpt
