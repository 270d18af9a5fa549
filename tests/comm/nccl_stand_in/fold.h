// The reduction of one element over ranks, for the host and for CUDA.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#include "device.h"

namespace zt::test::stand_in {

// Sums of 16-bit types are rounded once, at the end.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>, float, T>;

template <class W>
C10_HOST_DEVICE W combine(W a, W b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return a > b ? a : b;
    case ncclMin:
      return a < b ? a : b;
    default:
      return a + b;
  }
}

template <class T>
C10_HOST_DEVICE void fold(const Sum& sum, size_t i) {
  const auto in = [&](int r) {
    const auto* others = static_cast<const T*>(sum.others);
    if (r == sum.rank) return static_cast<Wide<T>>(static_cast<const T*>(sum.own)[i]);
    return static_cast<Wide<T>>(others[static_cast<size_t>(r < sum.rank ? r : r - 1) * sum.count + i]);
  };
  Wide<T> value = in(0);
  for (int r = 1; r < sum.size; ++r) value = combine(value, in(r), sum.op);
  static_cast<T*>(sum.out)[i] = static_cast<T>(value);
}

// Calls `run` with a value of the type. Returns false for a type that is not known here.
template <class Run>
bool with_type(ncclDataType_t type, const Run& run) {
  switch (type) {
    case ncclFloat32:
      return run(float{}), true;
    case ncclFloat64:
      return run(double{}), true;
    case ncclFloat16:
      return run(c10::Half{}), true;
    case ncclBfloat16:
      return run(c10::BFloat16{}), true;
    case ncclInt8:
      return run(int8_t{}), true;
    case ncclUint8:
      return run(uint8_t{}), true;
    case ncclInt32:
      return run(int32_t{}), true;
    case ncclUint32:
      return run(uint32_t{}), true;
    case ncclInt64:
      return run(int64_t{}), true;
    case ncclUint64:
      return run(uint64_t{}), true;
    default:
      return false;
  }
}

inline size_t size_of(ncclDataType_t type) {
  size_t bytes = 0;
  with_type(type, [&](auto value) { bytes = sizeof(value); });
  return bytes;
}

}  // namespace zt::test::stand_in
