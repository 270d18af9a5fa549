// Element types of tensors as HDF5 types.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "handle.h"

namespace zt::ckpt {

// Requires an Hdf5Session.

// Returns the type of an element in a file: little-endian IEEE numbers and integers; float16 and bool (an enumeration of int8:
// FALSE, TRUE) as h5py has them; bfloat16 as a float of 16 bits with 8 bits of exponent. Throws Misuse for a dtype that
// checkpoints do not have.
Handle hdf5_type(at::ScalarType dtype);
// Returns the dtype whose hdf5_type equals `type`, or nullopt.
std::optional<at::ScalarType> dtype_of(hid_t type);

// Whether checkpoints have this dtype.
bool has_type(at::ScalarType dtype);
// Returns the dtype of a name, such as "bfloat16" (dtype_name); nullopt for a name that checkpoints do not have.
std::optional<at::ScalarType> type_named(std::string_view name);

}  // namespace zt::ckpt
