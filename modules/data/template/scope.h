// Variables of a template: nested scopes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "template/value/value.h"

namespace zt::data::jinja {

class TemplateScope {
 public:
  explicit TemplateScope(const TemplateScope* parent) : parent_(parent) {}
  // Returns the variable of this scope or of the nearest one around it, or null.
  const TemplateValue* find(const std::string& name) const {
    for (const TemplateScope* scope = this; scope; scope = scope->parent_)
      for (const auto& [key, value] : scope->variables_)
        if (key == name) return &value;
    return nullptr;
  }
  // Sets the variable in this scope.
  void set(const std::string& name, TemplateValue value) {
    for (auto& [key, old] : variables_)
      if (key == name) {
        old = std::move(value);
        return;
      }
    variables_.emplace_back(name, std::move(value));
  }

 private:
  const TemplateScope* const parent_;
  std::vector<std::pair<std::string, TemplateValue>> variables_;
};

}  // namespace zt::data::jinja
