#include "template/library/arguments.h"

#include <algorithm>

#include "template/value/compare.h"

namespace zt::data::jinja {

BoundArguments::BoundArguments(TemplateRun& run, std::string_view function, const CallArguments& arguments,
                               std::initializer_list<std::string_view> parameters, size_t required, NamedArguments named)
    : run_(run), function_(function), parameters_(parameters), values_(parameters.size(), nullptr) {
  const auto& positional = arguments.positional;
  if (positional.size() > values_.size())
    run.fail("'{}' takes at most {}, but has {}", function, counted(static_cast<int64_t>(values_.size()), "argument"),
             positional.size());
  for (size_t i = 0; i < positional.size(); ++i) bind(i, positional[i]);
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end() || named == NamedArguments::refused)
      run.fail("'{}' has no parameter with the name '{}'", function, name);
    bind(static_cast<size_t>(found - parameters_.begin()), value);
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) run.fail("'{}' needs the argument '{}'", function, parameters_[i]);
}

void BoundArguments::bind(size_t index, const TemplateValue& value) {
  if (values_[index]) run_.fail("'{}' has the argument '{}' twice", function_, parameters_[index]);
  values_[index] = &value;
}

int64_t BoundArguments::integer(size_t index, int64_t fallback) const {
  if (!values_[index]) return fallback;
  run_.refuse_undefined(*values_[index]);
  const auto value = values_[index]->as_index();
  if (!value)
    run_.fail("the argument '{}' of '{}' must be an integer, not a {}", parameters_[index], function_,
              values_[index]->type_name());
  return *value;
}

const MarkedText& BoundArguments::text(size_t index, const MarkedText& fallback) const {
  return values_[index] ? text(index) : fallback;
}

const MarkedText& BoundArguments::text(size_t index) const {
  run_.refuse_undefined(*values_[index]);
  const MarkedText* const value = values_[index]->text();
  if (!value)
    run_.fail("the argument '{}' of '{}' must be a string, not a {}", parameters_[index], function_, values_[index]->type_name());
  return *value;
}

bool BoundArguments::truth(size_t index, bool fallback) const {
  return values_[index] ? is_true(run_, *values_[index]) : fallback;
}

const TemplateValue* BoundArguments::find_given(size_t index) const {
  return values_[index] && !values_[index]->is_none() ? values_[index] : nullptr;
}

void refuse_arguments(TemplateRun& run, std::string_view function, const CallArguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty()) run.fail("'{}' takes no arguments", function);
}

}  // namespace zt::data::jinja
