// Binds the arguments of a call to the parameters of a built-in function, filter or test.
#pragma once

#include <initializer_list>
#include <string_view>

#include "template/value/run.h"

namespace zt::data::jinja {

// Whether a function accepts its arguments by name. Many functions of Python do not.
enum class NamedArguments : uint8_t { allowed, refused };

// Holds references to the arguments: they have to outlive it.
class BoundArguments {
 public:
  // `function` is for messages. The first `required` parameters must be given. Throws Fault for an argument too many, too few or
  // with an unknown name.
  BoundArguments(TemplateRun& run, std::string_view function, const CallArguments& arguments,
                 std::initializer_list<std::string_view> parameters, size_t required = 0,
                 NamedArguments named = NamedArguments::allowed);

  // Returns null if the argument is absent.
  const TemplateValue* find(size_t index) const { return values_[index]; }
  // The argument must be required.
  const TemplateValue& operator[](size_t index) const { return *values_[index]; }
  // Each returns `fallback` if the argument is absent, and throws Fault if it has another type.
  int64_t integer(size_t index, int64_t fallback) const;
  const MarkedText& text(size_t index, const MarkedText& fallback) const;
  bool truth(size_t index, bool fallback) const;
  // The same for required arguments.
  int64_t integer(size_t index) const { return integer(index, 0); }
  const MarkedText& text(size_t index) const;
  // Returns null for an absent argument and for none.
  const TemplateValue* find_given(size_t index) const;

 private:
  void bind(size_t index, const TemplateValue& value);

  TemplateRun& run_;
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<const TemplateValue*> values_;
};

// Throws Fault if there is an argument.
void refuse_arguments(TemplateRun& run, std::string_view function, const CallArguments& arguments);

}  // namespace zt::data::jinja
