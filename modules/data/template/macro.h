// Macros and the bodies of call blocks as values.
#pragma once

#include "template/evaluator.h"

namespace zt::data::jinja {

class MacroObject : public TemplateObject {
 public:
  MacroObject(Evaluator& evaluator, const MacroDefinition& macro, const TemplateScope& scope)
      : evaluator_(evaluator), macro_(macro), scope_(scope) {}
  std::string type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  TemplateValue call(TemplateRun&, const CallArguments& arguments) override {
    return evaluator_.call_macro(macro_, scope_, arguments);
  }
  std::optional<TemplateValue> attribute(TemplateRun& run, const std::string& name) override;
  void print(TemplateRun& run, MarkedText& out) override;

 private:
  Evaluator& evaluator_;
  const MacroDefinition& macro_;
  const TemplateScope& scope_;
};

}  // namespace zt::data::jinja
