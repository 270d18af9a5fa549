#include "ops/signature.h"

#include <ATen/core/jit_type.h>

#include <tuple>
#include <unordered_map>

namespace zt::lua {

namespace {

std::optional<ArgumentKind> kind_of(const c10::Type& type);

std::optional<ArgumentKind> list_kind(const c10::Type& element) {
  if (element.kind() == c10::TypeKind::OptionalType) {
    const auto& inner = *element.expectRef<c10::OptionalType>().getElementType();
    return inner.kind() == c10::TypeKind::TensorType ? std::optional(ArgumentKind::optional_tensors) : std::nullopt;
  }
  const auto kind = kind_of(element);
  if (!kind) return std::nullopt;
  switch (*kind) {
    case ArgumentKind::tensor:
      return ArgumentKind::tensors;
    case ArgumentKind::integer:
      return ArgumentKind::integers;
    case ArgumentKind::floating:
      return ArgumentKind::floatings;
    case ArgumentKind::scalar:
      return ArgumentKind::scalars;
    case ArgumentKind::boolean:
      return ArgumentKind::booleans;
    default:
      return std::nullopt;  // str[] is Dimname[]
  }
}

// Returns nullopt for types without a counterpart in Lua (storages, streams, packed parameters, names of dims).
std::optional<ArgumentKind> kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return ArgumentKind::tensor;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgumentKind::integer;
    case c10::TypeKind::FloatType:
      return ArgumentKind::floating;
    case c10::TypeKind::NumberType:
      return ArgumentKind::scalar;
    case c10::TypeKind::BoolType:
      return ArgumentKind::boolean;
    case c10::TypeKind::StringType:
      return ArgumentKind::text;
    case c10::TypeKind::ScalarTypeType:
      return ArgumentKind::dtype;
    case c10::TypeKind::LayoutType:
      return ArgumentKind::layout;
    case c10::TypeKind::MemoryFormatType:
      return ArgumentKind::memory_format;
    case c10::TypeKind::DeviceObjType:
      return ArgumentKind::device;
    case c10::TypeKind::GeneratorType:
      return ArgumentKind::generator;
    case c10::TypeKind::ListType:
      return list_kind(*type.expectRef<c10::ListType>().getElementType());
    default:
      return std::nullopt;
  }
}

std::optional<Parameter> parameter_of(const c10::Argument& argument) {
  // Uses real_type() because type() shows dtypes, layouts and symbolic integers as plain integers.
  const auto& real_type = argument.real_type();
  const bool is_optional = real_type->kind() == c10::TypeKind::OptionalType;
  const auto kind = kind_of(is_optional ? *real_type->expectRef<c10::OptionalType>().getElementType() : *real_type);
  if (!kind) return std::nullopt;
  // A Dimname looks like a string. Parameters that are named dim... are Dimnames.
  if (*kind == ArgumentKind::text && argument.name().starts_with("dim")) return std::nullopt;
  const auto* alias = argument.alias_info();
  return Parameter{
      argument.name(),         *kind, is_optional, argument.kwarg_only(), alias && alias->isWrite(), argument.N().has_value(),
      argument.default_value()};
}

bool has_kind(const std::vector<Parameter>& parameters, std::initializer_list<ArgumentKind> kinds) {
  return std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
    return std::find(kinds.begin(), kinds.end(), parameter.kind) != kinds.end();
  });
}

bool takes_loose_sizes(const std::vector<Parameter>& parameters, size_t positional) {
  const size_t first = !parameters.empty() && parameters[0].name == "self" ? 1 : 0;
  return positional == first + 1 && parameters[first].kind == ArgumentKind::integers;
}

std::optional<Overload> overload_of(const c10::OperatorHandle& handle) {
  std::vector<Parameter> parameters;
  for (const auto& argument : handle.schema().arguments()) {
    auto parameter = parameter_of(argument);
    if (!parameter) return std::nullopt;
    parameters.push_back(std::move(*parameter));
  }
  const auto count = [&](auto&& is) { return static_cast<size_t>(std::count_if(parameters.begin(), parameters.end(), is)); };
  const size_t positional = count([](const Parameter& p) { return !p.is_keyword_only; });
  const auto self = std::find_if(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.name == "self"; });
  const bool takes_tensors = has_kind(parameters, {ArgumentKind::tensor, ArgumentKind::tensors, ArgumentKind::optional_tensors});
  return Overload{
      .handle = handle,
      .parameters = parameters,
      .positional = positional,
      .self_index = self == parameters.end() ? 0 : static_cast<size_t>(self - parameters.begin()),
      .takes_loose_sizes = takes_loose_sizes(parameters, positional),
      .is_factory = !takes_tensors && has_kind(parameters, {ArgumentKind::dtype}),
      .is_out = count([](const Parameter& p) { return p.is_keyword_only && p.is_written; }) > 0,
      .draws_without_generator =
          handle.hasTag(at::Tag::nondeterministic_seeded) && !has_kind(parameters, {ArgumentKind::generator}),
  };
}

class OperatorTable {
 public:
  OperatorTable() {
    constexpr std::string_view kNamespace = "aten::";
    for (const auto& full_name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!full_name.name.starts_with(kNamespace)) continue;
      const auto handle = c10::Dispatcher::singleton().findSchema(full_name);
      if (!handle) continue;
      if (auto overload = overload_of(*handle)) add(full_name.name.substr(kNamespace.size()), std::move(*overload));
    }
    for (auto& [name, op] : operators_) {
      names_.push_back(name);
      // The order of preference among equally good matches. It must be the same in every run. An overload with a generator comes
      // before the same without one, as for rand.
      std::sort(op.overloads.begin(), op.overloads.end(), [](const Overload& a, const Overload& b) {
        const auto key = [](const Overload& o) {
          return std::tuple(o.is_out, o.draws_without_generator, o.parameters.size(), o.handle.schema().overload_name());
        };
        return key(a) < key(b);
      });
    }
    std::sort(names_.begin(), names_.end());
  }

  const Operator* find(std::string_view name) const {
    const auto found = operators_.find(std::string(name));
    return found == operators_.end() ? nullptr : &found->second;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  void add(const std::string& name, Overload overload) {
    Operator& op = operators_[name];
    op.name = name;
    op.overloads.push_back(std::move(overload));
  }

  std::unordered_map<std::string, Operator> operators_;
  std::vector<std::string> names_;
};

const OperatorTable& operator_table() {
  static const OperatorTable made;
  return made;
}

}  // namespace

std::string Overload::text() const {
  const std::string full = c10::toString(handle.schema());
  return full.substr(full.find("::") + 2);
}

const Operator* find_operator(std::string_view name) {
  return operator_table().find(name);
}

const std::vector<std::string>& operator_names() {
  return operator_table().names();
}

const char* kind_text(ArgumentKind kind) {
  switch (kind) {
    case ArgumentKind::tensor:
      return "a tensor";
    case ArgumentKind::tensors:
      return "a list of tensors";
    case ArgumentKind::optional_tensors:
      return "a list of tensors (false for none)";
    case ArgumentKind::integer:
      return "an integer";
    case ArgumentKind::floating:
    case ArgumentKind::scalar:
      return "a number";
    case ArgumentKind::boolean:
      return "a boolean";
    case ArgumentKind::text:
      return "a string";
    case ArgumentKind::integers:
      return "a list of integers";
    case ArgumentKind::floatings:
    case ArgumentKind::scalars:
      return "a list of numbers";
    case ArgumentKind::booleans:
      return "a list of booleans";
    case ArgumentKind::dtype:
      return "a dtype such as 'float32'";
    case ArgumentKind::layout:
      return "a layout: 'strided', 'sparse_coo', 'sparse_csr'";
    case ArgumentKind::memory_format:
      return "a memory format: 'contiguous', 'preserve', 'channels_last', 'channels_last_3d'";
    case ArgumentKind::device:
      return "a device such as 'cpu' or 'cuda:0'";
    case ArgumentKind::generator:
      return "a generator made by zt.generator";
  }
  return "";
}

}  // namespace zt::lua
