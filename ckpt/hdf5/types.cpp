#include "types.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::ckpt {

namespace {

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

struct ElementType {
  at::ScalarType dtype;
  Handle (*make)();
};

const std::array kTypes{
    ElementType{at::kFloat, [] { return copy_of(H5T_IEEE_F32LE); }},
    ElementType{at::kDouble, [] { return copy_of(H5T_IEEE_F64LE); }},
    ElementType{at::kHalf, [] { return half_type(5, 15); }},
    ElementType{at::kBFloat16, [] { return half_type(8, 127); }},
    ElementType{at::kChar, [] { return copy_of(H5T_STD_I8LE); }},
    ElementType{at::kShort, [] { return copy_of(H5T_STD_I16LE); }},
    ElementType{at::kInt, [] { return copy_of(H5T_STD_I32LE); }},
    ElementType{at::kLong, [] { return copy_of(H5T_STD_I64LE); }},
    ElementType{at::kByte, [] { return copy_of(H5T_STD_U8LE); }},
    ElementType{at::kBool, bool_type},
};

}  // namespace

Handle hdf5_type(at::ScalarType dtype) {
  const auto known = std::ranges::find(kTypes, dtype, &ElementType::dtype);
  if (known != kTypes.end()) return known->make();
  misuse("a checkpoint cannot hold tensors of dtype {}: convert it to a float, an integer or bool first", c10::toString(dtype));
}

std::optional<at::ScalarType> dtype_of(hid_t type) {
  for (const ElementType& known : kTypes) {
    if (H5Tequal(type, known.make()) > 0) return known.dtype;
  }
  return std::nullopt;
}

bool has_type(at::ScalarType dtype) {
  return std::ranges::find(kTypes, dtype, &ElementType::dtype) != kTypes.end();
}

std::optional<at::ScalarType> type_named(std::string_view name) {
  for (const ElementType& known : kTypes) {
    if (dtype_name(known.dtype) == name) return known.dtype;
  }
  return std::nullopt;
}

}  // namespace zt::ckpt
