#include "zt/model/precision.h"

#include <algorithm>
#include <optional>

#include "zt/base/options.h"

namespace zt {

namespace {

struct FloatType {
  const char* name;
  c10::ScalarType type;
};
constexpr FloatType kFloatTypes[] = {{"fp32", c10::ScalarType::Float},
                                     {"bf16", c10::ScalarType::BFloat16},
                                     {"fp16", c10::ScalarType::Half},
                                     {"fp64", c10::ScalarType::Double}};

struct PrecisionOptions {
  std::string params;
  std::optional<std::string> grads, reduce;
};

}  // namespace

c10::ScalarType parse_float_type(const std::string& name, const std::string& path) {
  for (const FloatType& known : kFloatTypes) {
    if (name == known.name) return known.type;
  }
  misuse("{}: unknown precision '{}'{}", path, name, suggest(name, names_of(kFloatTypes, &FloatType::name)));
}

std::string float_type_name(c10::ScalarType type) {
  const auto* found = std::ranges::find(kFloatTypes, type, &FloatType::type);
  return found == std::end(kFloatTypes) ? c10::toString(type) : found->name;
}

std::string Precision::text() const {
  std::string text = float_type_name(params);
  if (grads == master() && reduce == grads) return text;
  return text + fmt::format(" (gradients {}, sent as {})", float_type_name(grads), float_type_name(reduce));
}

void check_precision(const Precision& precision, const std::string& path) {
  const auto is_double = [](c10::ScalarType type) { return type == c10::ScalarType::Double; };
  const bool wanted = is_double(precision.params);
  if (is_double(precision.grads) == wanted && is_double(precision.reduce) == wanted) return;
  misuse("{}: parameters in {}, gradients summed in {} and sent in {}: fp64 is for all of them or for none", path,
         float_type_name(precision.params), float_type_name(precision.grads), float_type_name(precision.reduce));
}

Precision parse_precision(const Value& value, const std::string& path) {
  PrecisionOptions given;
  if (const auto* name = value.get_if<std::string>()) {
    given.params = *name;
  } else {
    given = Schema<PrecisionOptions>(path)
                .required("params", &PrecisionOptions::params, "type of parameters and activations")
                .optional("grads", &PrecisionOptions::grads, "type in which gradients are summed")
                .optional("reduce", &PrecisionOptions::reduce, "type in which gradients are sent")
                .parse(value);
  }
  Precision precision;
  precision.params = parse_float_type(given.params, path);
  precision.grads = given.grads ? parse_float_type(*given.grads, path + ".grads") : precision.master();
  precision.reduce = given.reduce ? parse_float_type(*given.reduce, path + ".reduce") : precision.grads;
  check_precision(precision, path);
  return precision;
}

}  // namespace zt
