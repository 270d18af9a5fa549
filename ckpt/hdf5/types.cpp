#include "types.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

struct NamedType {
  const char* name;
  at::ScalarType dtype;
};

constexpr std::array<NamedType, 10> kTypes{{{"float32", at::kFloat},
                                            {"float64", at::kDouble},
                                            {"float16", at::kHalf},
                                            {"bfloat16", at::kBFloat16},
                                            {"int8", at::kChar},
                                            {"int16", at::kShort},
                                            {"int32", at::kInt},
                                            {"int64", at::kLong},
                                            {"uint8", at::kByte},
                                            {"bool", at::kBool}}};

// Returns a float of 16 bits: sign, exponent, mantissa. The order of the calls matters: each must leave all fields inside the
// current size and precision, or HDF5 refuses it.
Handle half_type(size_t exponent_bits, size_t bias) {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "copy a type");
  const size_t mantissa_bits = 15 - exponent_bits;
  checked(H5Tset_fields(type, 15, mantissa_bits, exponent_bits, 0, mantissa_bits), "set a type's fields");
  checked(H5Tset_precision(type, 16), "set a type's precision");
  checked(H5Tset_size(type, 2), "set a type's size");
  checked(H5Tset_ebias(type, bias), "set a type's bias");
  return type;
}

Handle bool_type() {
  Handle type(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "make a type");
  int8_t value = 0;
  checked(H5Tenum_insert(type, "FALSE", &value), "fill a type");
  value = 1;
  checked(H5Tenum_insert(type, "TRUE", &value), "fill a type");
  return type;
}

Handle copy_of(hid_t type) {
  return {H5Tcopy(type), H5Tclose, "copy a type"};
}

}  // namespace

Handle hdf5_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return copy_of(H5T_IEEE_F32LE);
    case at::kDouble:
      return copy_of(H5T_IEEE_F64LE);
    case at::kHalf:
      return half_type(5, 15);
    case at::kBFloat16:
      return half_type(8, 127);
    case at::kChar:
      return copy_of(H5T_STD_I8LE);
    case at::kShort:
      return copy_of(H5T_STD_I16LE);
    case at::kInt:
      return copy_of(H5T_STD_I32LE);
    case at::kLong:
      return copy_of(H5T_STD_I64LE);
    case at::kByte:
      return copy_of(H5T_STD_U8LE);
    case at::kBool:
      return bool_type();
    default:
      misuse("a checkpoint cannot hold tensors of dtype {}: convert it to a float, an integer or bool first",
             c10::toString(dtype));
  }
}

std::optional<at::ScalarType> dtype_of(hid_t type) {
  for (const NamedType& known : kTypes) {
    if (H5Tequal(type, hdf5_type(known.dtype)) > 0) return known.dtype;
  }
  return std::nullopt;
}

bool has_type(at::ScalarType dtype) {
  return std::ranges::find(kTypes, dtype, &NamedType::dtype) != kTypes.end();
}

std::string type_name(at::ScalarType dtype) {
  for (const NamedType& known : kTypes) {
    if (known.dtype == dtype) return known.name;
  }
  return c10::toString(dtype);
}

std::optional<at::ScalarType> type_named(std::string_view name) {
  for (const NamedType& known : kTypes) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

}  // namespace zt::ckpt
