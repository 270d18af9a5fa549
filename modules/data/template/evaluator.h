// Evaluates the tree of a template.
#pragma once

#include "template/scope.h"
#include "template/syntax/syntax.h"
#include "template/value/run.h"

namespace zt::data::jinja {

// Not thread-safe: each rendering has one. The tree, the run and the scopes have to outlive it.
class Evaluator {
 public:
  explicit Evaluator(TemplateRun& run) : run_(run) {}

  // Executes the template in a scope inside of that of its inputs, and returns the text that it writes.
  MarkedText render(const ScopedBody& body, const TemplateScope& inputs);
  TemplateValue evaluate(const Expression& expression, TemplateScope& scope);
  // Assigns to a name, an attribute of a namespace or a tuple of these.
  void assign(const Expression& target, const TemplateValue& value, TemplateScope& scope);
  // Calls the macro: binds the arguments, and returns the text of the body.
  TemplateValue call_macro(const MacroDefinition& macro, const TemplateScope& scope, const CallArguments& arguments);
  // Executes a loop over `iterable`. `depth` is the depth of a recursive loop, from 0.
  enum class Flow : uint8_t { normal, breaks, continues };
  Flow run_loop(const ForStatement& loop, const TemplateValue& iterable, TemplateScope& scope, int64_t depth);
  // The same for a recursive call: returns the text.
  TemplateValue render_loop(const ForStatement& loop, const TemplateValue& iterable, TemplateScope& scope, int64_t depth);

 private:
  friend struct ExpressionVisitor;
  friend struct StatementVisitor;

  // Returns a scope for the body inside of `outer`.
  TemplateScope& make_scope(const ScopedBody& body, const TemplateScope& outer);
  Flow execute(const Statements& statements, TemplateScope& scope);
  void write(MarkedView text);
  // Executes the statements, and returns their text instead of writing it.
  MarkedText capture(const Statements& statements, TemplateScope& scope, Flow& flow);
  // Evaluates a chain of filters on the text of a block.
  TemplateValue filter_block(const Expression& filter, MarkedText text, TemplateScope& scope);
  CallArguments arguments_of(const ArgumentList& list, TemplateScope& scope);
  TemplateValue call(const CallExpr& call, TemplateScope& scope, const TemplateValue* caller);

  TemplateRun& run_;
  MarkedText out_;
  const TemplateValue* block_text_ = nullptr;  // the operand of a chain of filters that has none
};

// Throws Fault if the value is undefined or cannot be called.
TemplateValue call_value(TemplateRun& run, const TemplateValue& callee, const CallArguments& arguments);

}  // namespace zt::data::jinja
