// Encodes values that one HDF5 dataset or attribute can hold: nil, booleans, numbers, strings and lists of one kind of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "handle.h"
#include "zt/base/value.h"

namespace zt::ckpt {

// Requires an Hdf5Session.

struct EncodedValue {
  Handle type, space;
  std::vector<std::byte> bytes;  // the elements as `type` stores them in a file
};

// Returns a value as one dataset or attribute, or nullopt if it needs a group. Groups are needed for tables, for lists of several
// kinds, of lists or of tables, and for some lists of strings: if one ends with NUL, which an array would lose, or if an array
// would waste much space. Throws Misuse for a tensor or an object.
std::optional<EncodedValue> encode_value(const Value& value);
// Returns an array of strings, each padded with NUL to the length of the longest. Requires strings that do not end with NUL.
EncodedValue encode_strings(const std::vector<std::string>& strings);

}  // namespace zt::ckpt
