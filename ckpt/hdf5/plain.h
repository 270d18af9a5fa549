// Values that one HDF5 dataset or attribute can hold: nil, booleans, numbers, strings and lists of one kind of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "handle.h"
#include "zt/base/value.h"

namespace zt::ckpt {

// Hdf5Session is held for these.

struct Plain {
  Handle type, space;
  std::vector<std::byte> bytes;  // as HDF5 has them in a file of the type
};

// Nothing for a table, for a list of several kinds, of lists or of tables, and for a list of strings that an array would not give
// back as they are (a string that ends with NUL) or without much waste. Misuse for a tensor or an object.
std::optional<Plain> to_plain(const Value& value);
// An array of strings, each at most as long as the longest and without NUL at its end.
Plain plain_strings(const std::vector<std::string>& strings);

}  // namespace zt::ckpt
