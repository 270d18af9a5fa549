// The floating-point types of parameters, gradients and optimizer state.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "zt/base/value.h"

namespace zt {

struct Precision {
  c10::ScalarType params = c10::ScalarType::Float;  // type of the layers' parameters and activations
  c10::ScalarType grads = c10::ScalarType::Float;   // type in which gradients are summed on a rank
  c10::ScalarType reduce = c10::ScalarType::Float;  // type in which gradients are sent; ranks add in fp32 and round once

  // Returns the type of the master parameters, which the optimizer updates, and of the optimizer state.
  c10::ScalarType master() const { return params == c10::ScalarType::Double ? c10::ScalarType::Double : c10::ScalarType::Float; }
  // Returns whether layers compute in fewer bits than the optimizer. Then the optimizer keeps master parameters, and layers get
  // rounded copies.
  bool is_mixed() const { return params != master(); }
  // Returns "bf16", or "bf16 (gradients fp32, sent as bf16)" if grads or reduce is not the default for the type of parameters.
  std::string text() const;
  bool operator==(const Precision&) const = default;

  // With 16-bit parameters, gradients are summed and sent in fp32.
  static const Precision fp32, fp64, bf16, fp16;
};

inline constexpr Precision Precision::fp32{};
inline constexpr Precision Precision::fp64{c10::ScalarType::Double, c10::ScalarType::Double, c10::ScalarType::Double};
inline constexpr Precision Precision::bf16{c10::ScalarType::BFloat16, c10::ScalarType::Float, c10::ScalarType::Float};
inline constexpr Precision Precision::fp16{c10::ScalarType::Half, c10::ScalarType::Float, c10::ScalarType::Float};

// Returns the type of a name: "fp32", "bf16", "fp16" or "fp64". Throws Misuse, with `path`, for another name.
c10::ScalarType parse_float_type(const std::string& name, const std::string& path);
std::string float_type_name(c10::ScalarType type);

// Throws Misuse, with `path`, if fp64 is mixed with other types.
void check_precision(const Precision& precision, const std::string& path);

// Parses one of these names, or a table {params = name, grads = name, reduce = name}. The default of `grads` is the type of the
// master parameters, that of `reduce` is `grads`. Throws Misuse, with `path`, for another value or if fp64 is mixed with others.
Precision parse_precision(const Value& value, const std::string& path);

}  // namespace zt
