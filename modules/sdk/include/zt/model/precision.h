// The types of a step's numbers.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "zt/base/value.h"

namespace zt {

struct Precision {
  c10::ScalarType params = c10::ScalarType::Float;  // of the layers' parameters and activations
  c10::ScalarType grads = c10::ScalarType::Float;   // of the sums of gradients
  c10::ScalarType reduce = c10::ScalarType::Float;  // that gradients travel in; added in fp32 and rounded once

  // Of what the optimizer updates, and of its state.
  c10::ScalarType master() const { return params == c10::ScalarType::Double ? c10::ScalarType::Double : c10::ScalarType::Float; }
  // Layers compute in fewer bits than the optimizer: it keeps parameters of its own, and layers get them rounded.
  bool is_mixed() const { return params != master(); }
  // "bf16", or "bf16 (gradients fp32, sent as bf16)" where something is not as the parameters' type makes it.
  std::string text() const;
  bool operator==(const Precision&) const = default;

  // 16-bit parameters accumulate gradients in fp32 and send them so.
  static const Precision fp32, fp64, bf16, fp16;
};

inline constexpr Precision Precision::fp32{};
inline constexpr Precision Precision::fp64{c10::ScalarType::Double, c10::ScalarType::Double, c10::ScalarType::Double};
inline constexpr Precision Precision::bf16{c10::ScalarType::BFloat16, c10::ScalarType::Float, c10::ScalarType::Float};
inline constexpr Precision Precision::fp16{c10::ScalarType::Half, c10::ScalarType::Float, c10::ScalarType::Float};

// "fp32", "bf16", "fp16" or "fp64". Misuse, with `path`, for another type or name.
c10::ScalarType parse_float_type(const std::string& name, const std::string& path);
std::string float_type_name(c10::ScalarType type);

// Misuse, with `path`, where fp64 is mixed with others.
void check_precision(const Precision& precision, const std::string& path);

// One of these names, or {params = name, grads = name, reduce = name}: gradients are summed in fp32 unless said otherwise, and
// sent as they are summed. Misuse, with `path`, where fp64 is mixed with others.
Precision parse_precision(const Value& value, const std::string& path);

}  // namespace zt
