// Options tables. Each table has one declared schema. Parsing throws Misuse for an unknown key, a wrong type, a value out of
// range and an option that has no effect beside the others, and names the path of the key. Nothing is ignored.
//
//   struct LinearOptions { int64_t in = 0, out = 0; bool bias = true; double bias_std = 0; };
//   const auto kLinear = Schema<LinearOptions>("nn.linear")
//       .required("in", &LinearOptions::in, "columns of the input", at_least(1))
//       .required("out", &LinearOptions::out, "columns of the output", at_least(1))
//       .optional("bias", &LinearOptions::bias, "add a bias")
//       .optional("bias_std", &LinearOptions::bias_std, "standard deviation of the initial bias", at_least(0))
//       .only_with("with bias = true", [](const LinearOptions& o) { return o.bias; });
//   LinearOptions options = kLinear.parse(value);
//
// An option may be a table itself: a struct whose schema a function schema_of(const T&) in T's namespace returns.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/error.h"
#include "zt/base/option_texts.h"
#include "zt/base/value.h"
#include "zt/base/words.h"

namespace zt {

// Returns what is wrong with the value ("must be at least 1"), or an empty string.
template <class V>
using Check = std::function<std::string(const V&)>;

inline auto at_least(double low) {
  return [low](const auto& v) -> std::string {
    return static_cast<double>(v) >= low ? std::string() : fmt::format("must be at least {}, got {}", low, v);
  };
}
inline auto above(double low) {
  return [low](const auto& v) -> std::string {
    return static_cast<double>(v) > low ? std::string() : fmt::format("must be above {}, got {}", low, v);
  };
}
inline auto between(double low, double high) {
  return [low, high](const auto& v) -> std::string {
    const auto x = static_cast<double>(v);
    return x >= low && x <= high ? std::string() : fmt::format("must lie between {} and {}, got {}", low, high, v);
  };
}
inline auto one_of(std::vector<std::string> names) {
  return [names](const std::string& v) {
    if (std::ranges::find(names, v) != names.end()) return std::string();
    return fmt::format("must be one of '{}', got '{}'", fmt::join(names, "', '"), v);
  };
}

template <class T>
concept HasSchema = requires(const T& options) {
  schema_of(options);
};

// Conversions that Schema uses. Each throws Misuse, with the path, if the value has another type.
void convert(const Value& value, const std::string& path, bool& out);
void convert(const Value& value, const std::string& path, int64_t& out);  // a double with an integral value is accepted
void convert(const Value& value, const std::string& path, int& out);
void convert(const Value& value, const std::string& path, double& out);
void convert(const Value& value, const std::string& path, std::string& out);
void convert(const Value& value, const std::string& path, at::Tensor& out);
void convert(const Value& value, const std::string& path, Value::Table& out);
void convert(const Value& value, const std::string& path, Value& out);
[[noreturn]] void wrong_type(const std::string& path, const std::string& wanted, const Value& got);

template <EnumWithWords E>
void convert(const Value& value, const std::string& path, E& out) {
  std::string word;
  convert(value, path, word);
  const std::vector<std::string> words = all_words<E>();
  const std::string complaint = one_of(words)(word);
  if (!complaint.empty()) misuse("{} {}", path, complaint);
  out = static_cast<E>(std::ranges::find(words, word) - words.begin());
}
template <HasSchema T>
void convert(const Value& value, const std::string& /*path*/, T& out) {
  out = schema_of(out).parse(value);
}
template <class V>
void convert(const Value& value, const std::string& path, std::vector<V>& out) {
  const auto* list = value.get_if<Value::List>();
  const auto* table = value.get_if<Value::Table>();
  if (table && table->empty()) return out.clear();
  if (!list) wrong_type(path, "a list", value);
  out.clear();
  for (size_t i = 0; i < list->size(); ++i) {
    V item{};
    convert((*list)[i], fmt::format("{}[{}]", path, i + 1), item);
    out.push_back(std::move(item));
  }
}
template <class V>
void convert(const Value& value, const std::string& path, std::map<std::string, V>& out) {
  Value::Table table;
  convert(value, path, table);
  out.clear();
  for (const auto& [key, item] : table) convert(item, member_name(path, key), out[key]);
}
template <class V>
void convert(const Value& value, const std::string& path, std::optional<V>& out) {
  out.reset();
  if (value.is_nil()) return;
  V item{};
  convert(value, path, item);
  out = std::move(item);
}
template <class T>
void convert(const Value& value, const std::string& path, std::shared_ptr<T>& out) {
  const auto* object = value.get_if<Object>();
  out = object ? object->as<T>() : nullptr;
  if (!out) wrong_type(path, std::string("a ") + tag_of<T>().name, value);
}

// Texts that Schema::text uses, beside that of a Value. An object that was made from options has the texts of these, too.
template <class V>
void add_text(const std::string& name, const std::vector<V>& list, OptionTexts& texts);
template <class V>
void add_text(const std::string& name, const std::map<std::string, V>& table, OptionTexts& texts);
template <class V>
void add_text(const std::string& name, const std::optional<V>& value, OptionTexts& texts);
template <class T>
void add_text(const std::string& name, const std::shared_ptr<T>& object, OptionTexts& texts);
template <EnumWithWords E>
void add_text(const std::string& name, E value, OptionTexts& texts) {
  add_text(name, Value(word_of(value)), texts);
}
template <class T>
requires requires(const T& value) {
  { to_value(value) } -> std::same_as<Value>;
}
void add_text(const std::string& name, const T& value, OptionTexts& texts) {
  add_text(name, to_value(value), texts);
}
template <HasSchema T>
void add_text(const std::string& name, const T& options, OptionTexts& texts) {
  for (const auto& [key, text] : schema_of(options).text(options)) texts[name + "." + key] = text;
}
template <class V>
void add_text(const std::string& name, const std::vector<V>& list, OptionTexts& texts) {
  for (size_t i = 0; i < list.size(); ++i) add_text(fmt::format("{}[{}]", name, i + 1), list[i], texts);
}
template <class V>
void add_text(const std::string& name, const std::map<std::string, V>& table, OptionTexts& texts) {
  for (const auto& [key, value] : table) add_text(member_name(name, key), value, texts);
}
template <class V>
void add_text(const std::string& name, const std::optional<V>& value, OptionTexts& texts) {
  if (value) add_text(name, *value, texts);
}
template <class T>
void add_text(const std::string& name, const std::shared_ptr<T>& object, OptionTexts& texts) {
  if (!object) return;
  texts[name] = tag_of<T>().name;
  if constexpr (std::derived_from<T, MadeFromOptions>) {
    for (const auto& [key, text] : object->option_texts) texts[name + "." + key] = text;
  }
  if constexpr (requires { object->kind(); }) texts[name] = object->kind();
}

// One key of a schema.
struct OptionInfo {
  std::string key, doc;
  bool is_required = false;
  std::string when = {};  // when it has an effect: "with bias = true"; empty: always
};

// Returns the table in `value`, or an empty one for nil and for an empty list. Throws Misuse if `value` has another type or if a
// key is not in `known`; the message then suggests the nearest known key.
const Value::Table& checked_table(const Value& value, const std::string& path, const std::vector<OptionInfo>& known);
// Throws Misuse if a key of the table is an old name, the first of a pair; the second is its new one.
void refuse_old_names(const Value& value, const std::string& path,
                      const std::vector<std::pair<std::string, std::string>>& renamed);
[[noreturn]] void without_effect(const std::string& path, const OptionInfo& option);

template <class T>
class Schema {
 public:
  explicit Schema(std::string name) : name_(std::move(name)) {}

  // `member` may also be one of a base of T.
  template <class V, class Base>
  Schema&& required(std::string key, V Base::*member, std::string doc, std::type_identity_t<Check<V>> check = nullptr) && {
    add<V>(std::move(key), member, std::move(doc), std::move(check), true);
    return std::move(*this);
  }
  // The default is what a default-constructed T holds.
  template <class V, class Base>
  Schema&& optional(std::string key, V Base::*member, std::string doc, std::type_identity_t<Check<V>> check = nullptr) && {
    add<V>(std::move(key), member, std::move(doc), std::move(check), false);
    return std::move(*this);
  }
  template <class V, class Base>
  Schema&& optional(std::string key, std::optional<V> Base::*member, std::string doc,
                    std::type_identity_t<Check<V>> check = nullptr) && {
    Check<std::optional<V>> whole;
    if (check) whole = [check](const std::optional<V>& v) { return check(*v); };
    add<std::optional<V>>(std::move(key), member, std::move(doc), std::move(whole), false);
    return std::move(*this);
  }

  // Says when the option before it has an effect; `when` completes "has an effect only ...". `has_effect` looks at all options,
  // defaults included. Who gives the option another value than its default although it has no effect is told so.
  Schema&& only_with(std::string when, std::function<bool(const T&)> has_effect) && {
    infos_.back().when = std::move(when);
    uses_.back().has_effect = std::move(has_effect);
    return std::move(*this);
  }

  // Adds a check of all options together, which throws Misuse.
  Schema&& checked(std::function<void(const T&)> check) && {
    check_ = std::move(check);
    return std::move(*this);
  }

  // Says that an option has had another name: who gives it by the old one is told the new one.
  Schema&& renamed(std::string old_key, std::string new_key) && {
    renamed_.emplace_back(std::move(old_key), std::move(new_key));
    return std::move(*this);
  }

  T parse(const Value& value) const {
    refuse_old_names(value, name_, renamed_);
    const Value::Table& table = checked_table(value, name_, infos_);
    T out{};
    std::vector<bool> is_given;
    for (size_t i = 0; i < infos_.size(); ++i) {
      const auto found = table.find(infos_[i].key);
      is_given.push_back(found != table.end() && !found->second.is_nil());
      if (is_given[i]) uses_[i].read(found->second, out);
      else if (infos_[i].is_required) misuse("{}: option '{}' is missing ({})", name_, infos_[i].key, infos_[i].doc);
    }
    for (size_t i = 0; i < infos_.size(); ++i) {
      if (is_given[i] && uses_[i].has_effect && !uses_[i].has_effect(out) && !is_default(uses_[i], out))
        without_effect(name_, infos_[i]);
    }
    if (check_) check_(out);
    return out;
  }
  // Returns the values of all options.
  OptionTexts text(const T& options) const {
    OptionTexts texts;
    for (const Use& use : uses_) use.write(options, texts);
    return texts;
  }
  // Parses the table, makes an object by `make_from`, a function of the options that returns a shared_ptr, and gives it the texts
  // of the options, which zt::Trainer compares over the ranks.
  template <class Make>
  auto make(const Value& value, const Make& make_from) const {
    const T options = parse(value);
    auto made = make_from(options);
    made->option_texts = text(options);
    return made;
  }
  const std::string& name() const { return name_; }
  const std::vector<OptionInfo>& options() const { return infos_; }

 private:
  // What is done with an option.
  struct Use {
    std::function<void(const Value&, T&)> read;
    std::function<void(const T&, OptionTexts&)> write;
    std::function<bool(const T&)> has_effect = {};  // empty: always
  };

  static bool is_default(const Use& use, const T& options) {
    OptionTexts given, usual;
    use.write(options, given);
    use.write(T{}, usual);
    return given == usual;
  }

  template <class V>
  void add(std::string key, V T::*member, std::string doc, Check<V> check, bool is_required) {
    const auto read = [path = name_ + "." + key, member, check](const Value& value, T& out) {
      convert(value, path, out.*member);
      const std::string complaint = check ? check(out.*member) : std::string();
      if (!complaint.empty()) misuse("{} {}", path, complaint);
    };
    uses_.push_back({read, [key, member](const T& options, OptionTexts& texts) { add_text(key, options.*member, texts); }});
    infos_.push_back({std::move(key), std::move(doc), is_required});
  }

  std::string name_;
  std::vector<OptionInfo> infos_;
  std::vector<Use> uses_;  // of the options in infos_
  std::function<void(const T&)> check_;
  std::vector<std::pair<std::string, std::string>> renamed_;
};

}  // namespace zt
