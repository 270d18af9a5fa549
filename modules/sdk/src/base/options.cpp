#include "zt/base/options.h"

namespace zt {

void wrong_type(const std::string& path, const std::string& wanted, const Value& got) {
  std::string text = wanted.starts_with("a ") ? with_article(wanted.substr(2)) : wanted;
  if (wanted == "a Axis") text += ", of a mesh, such as mesh.dp";
  misuse("{} must be {}, got {}", path, text, got.type_name());
}

namespace {

template <class T>
void convert_exact(const Value& value, const std::string& path, const char* wanted, T& out) {
  const T* held = value.get_if<T>();
  if (!held) wrong_type(path, wanted, value);
  out = *held;
}

}  // namespace

void refuse_old_names(const Value& value, const std::string& path,
                      const std::vector<std::pair<std::string, std::string>>& renamed) {
  const auto* table = value.get_if<Value::Table>();
  for (const auto& [before, now] : renamed) {
    if (table && table->contains(before)) misuse("{}: the option '{}' is now called '{}'", path, before, now);
  }
}

void without_effect(const std::string& path, const OptionInfo& option) {
  misuse("{}.{} has an effect only {}: change that, or leave {} out", path, option.key, option.when, option.key);
}

void convert(const Value& value, const std::string& path, bool& out) {
  convert_exact(value, path, "true or false", out);
}

void convert(const Value& value, const std::string& path, int64_t& out) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const double* number = value.get_if<double>();
  if (number && std::nearbyint(*number) == *number && std::fabs(*number) <= kExact) {
    out = static_cast<int64_t>(*number);
  } else if (number) {
    misuse("{} must be an integer, got {}", path, *number);
  } else {
    convert_exact(value, path, "an integer", out);
  }
}

void convert(const Value& value, const std::string& path, int& out) {
  int64_t wide = 0;
  convert(value, path, wide);
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()) {
    misuse("{} must fit 32 bits, got {}", path, wide);
  }
  out = static_cast<int>(wide);
}

void convert(const Value& value, const std::string& path, double& out) {
  if (const auto* whole = value.get_if<int64_t>()) out = static_cast<double>(*whole);
  else convert_exact(value, path, "a number", out);
}

void convert(const Value& value, const std::string& path, std::string& out) {
  convert_exact(value, path, "a string", out);
}
void convert(const Value& value, const std::string& path, at::Tensor& out) {
  convert_exact(value, path, "a tensor", out);
}

void convert(const Value& value, const std::string& path, Value::Table& out) {
  const auto* list = value.get_if<Value::List>();
  if (list && list->empty()) return out.clear();
  convert_exact(value, path, "a table", out);
}

void convert(const Value& value, const std::string&, Value& out) {
  out = value;
}

const Value::Table& checked_table(const Value& value, const std::string& path, const std::vector<OptionInfo>& known) {
  static const Value::Table kEmpty;
  const auto* list = value.get_if<Value::List>();
  if (value.is_nil() || (list && list->empty())) return kEmpty;
  const auto* table = value.get_if<Value::Table>();
  if (!table) wrong_type(path, "a table of options", value);
  for (const auto& [key, unused] : *table) {
    if (std::ranges::find(known, key, &OptionInfo::key) == known.end())
      misuse("{}: unknown option '{}'{}", path, key, suggest(key, names_of(known, &OptionInfo::key)));
  }
  return *table;
}

}  // namespace zt
