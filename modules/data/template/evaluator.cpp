// The expressions. The statements are in statements.cpp.
#include "template/evaluator.h"

#include <algorithm>

#include "template/library/names.h"
#include "template/library/objects.h"
#include "template/library/operators.h"
#include "template/methods/access.h"
#include "template/value/compare.h"
#include "template/value/print.h"

namespace zt::data::jinja {

namespace {

bool holds_comparison(TemplateRun& run, ComparisonOperator operation, const TemplateValue& left, const TemplateValue& right) {
  switch (operation) {
    case ComparisonOperator::equal:
      return is_equal(run, left, right);
    case ComparisonOperator::not_equal:
      return !is_equal(run, left, right);
    case ComparisonOperator::less:
      return compare(run, Order::less, left, right);
    case ComparisonOperator::less_equal:
      return compare(run, Order::less_equal, left, right);
    case ComparisonOperator::greater:
      return compare(run, Order::greater, left, right);
    case ComparisonOperator::greater_equal:
      return compare(run, Order::greater_equal, left, right);
    case ComparisonOperator::in:
      return contains(run, right, left);
    case ComparisonOperator::not_in:
      return !contains(run, right, left);
  }
  return false;
}

}  // namespace

struct ExpressionVisitor {
  Evaluator& evaluator;
  TemplateScope& scope;
  TemplateRun& run;

  TemplateValue evaluate(const ExpressionPtr& expression) { return evaluator.evaluate(*expression, scope); }
  TemplateValue evaluate_or_none(const ExpressionPtr& expression) { return expression ? evaluate(expression) : TemplateValue(); }

  TemplateValue operator()(const LiteralExpr& literal) { return literal.value; }

  TemplateValue operator()(const NameExpr& variable) {
    if (const TemplateValue* value = scope.find(variable.name)) return *value;
    if (auto value = find_global(run, variable.name)) return std::move(*value);
    return run.undefined(message("'{}' is undefined: pass it as a variable, or check it by `is defined` first", variable.name));
  }

  TemplateValue operator()(const NamespaceTarget& target) {
    run.fail("'{}.{}' can be assigned only", target.name, target.attribute);
  }

  TemplateValue operator()(const SequenceExpr& sequence) {
    std::vector<TemplateValue> items;
    for (const auto& item : sequence.items) items.push_back(evaluate(item));
    return run.list(std::move(items), sequence.is_tuple);
  }

  TemplateValue operator()(const DictExpr& literal) {
    TemplateDict dict;
    for (const auto& [key, value] : literal.entries) {
      const TemplateValue evaluated = evaluate(key);
      dict.set(run, evaluated, evaluate(value));
    }
    return run.dict(std::move(dict));
  }

  TemplateValue operator()(const UnaryExpr& unary) {
    const TemplateValue operand = evaluate(unary.operand);
    if (unary.operation == UnaryOperator::logical_not) return !is_true(run, operand);
    return apply(run, unary.operation, operand);
  }

  TemplateValue operator()(const BinaryExpr& binary) {
    const TemplateValue left = evaluate(binary.left);
    return apply(run, binary.operation, left, evaluate(binary.right));
  }

  TemplateValue operator()(const LogicalExpr& logical) {
    TemplateValue left = evaluate(logical.left);
    return is_true(run, left) == logical.is_and ? evaluate(logical.right) : left;
  }

  TemplateValue operator()(const ConcatExpr& concat) {
    MarkedText text;
    for (const auto& part : concat.parts) {
      text += text_of(run, evaluate(part));
      run.check_length(text.size());
    }
    return run.text(std::move(text));
  }

  TemplateValue operator()(const ComparisonExpr& comparison) {
    TemplateValue left = evaluate(comparison.first);
    for (const auto& [operation, operand] : comparison.others) {
      TemplateValue right = evaluate(operand);
      if (!holds_comparison(run, operation, left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  TemplateValue operator()(const ConditionalExpr& conditional) {
    if (is_true(run, evaluate(conditional.condition))) return evaluate(conditional.then);
    if (conditional.otherwise) return evaluate(conditional.otherwise);
    return run.undefined("the condition of an `if` in an expression is false, and there is no `else`: add one");
  }

  TemplateValue operator()(const AttributeExpr& attribute) {
    return get_attribute(run, evaluate(attribute.object), attribute.name, attribute.key);
  }

  TemplateValue operator()(const SliceExpr&) { return run.undefined("a slice stands in a tuple: no value has such an item"); }

  TemplateValue operator()(const ItemExpr& item) {
    const TemplateValue object = evaluate(item.object);
    const auto* slice = std::get_if<SliceExpr>(&item.key->node);
    if (!slice) return get_item(run, object, evaluate(item.key));
    const TemplateValue begin = evaluate_or_none(slice->begin), end = evaluate_or_none(slice->end);
    return get_slice(run, object, begin, end, evaluate_or_none(slice->step));
  }

  TemplateValue operator()(const CallExpr& call) { return evaluator.call(call, scope, nullptr); }

  TemplateValue operator()(const FilterExpr& filter) {
    const TemplateValue operand = filter.operand ? evaluate(filter.operand) : *evaluator.block_text_;
    const CallArguments arguments = evaluator.arguments_of(filter.arguments, scope);
    return call_filter(run, filter.name, operand, arguments);
  }

  TemplateValue operator()(const TestExpr& test) {
    const TemplateValue operand = evaluate(test.operand);
    const CallArguments arguments = evaluator.arguments_of(test.arguments, scope);
    return call_test(run, test.name, operand, arguments);
  }
};

TemplateValue Evaluator::evaluate(const Expression& expression, TemplateScope& scope) {
  run_.set_line(expression.line);
  run_.charge(1);
  const auto level = run_.enter_evaluation();
  return std::visit(ExpressionVisitor{*this, scope, run_}, expression.node);
}

CallArguments Evaluator::arguments_of(const ArgumentList& list, TemplateScope& scope) {
  CallArguments arguments;
  for (const auto& argument : list.positional) arguments.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, value] : list.named) arguments.named.emplace_back(name, evaluate(*value, scope));
  if (list.list) {
    const auto items = items_of(run_, evaluate(*list.list, scope));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (!list.table) return arguments;
  const TemplateValue table = evaluate(*list.table, scope);
  if (!table.dict()) run_.fail("'**' needs a dict, not a {}", table.type_name());
  for (const auto& [key, value] : table.dict()->entries()) {
    if (!key.text()) run_.fail("'**' needs a dict whose keys are strings, not a {}", key.type_name());
    const std::string name = to_utf8(*key.text());
    run_.charge(arguments.named.size());
    if (std::any_of(arguments.named.begin(), arguments.named.end(), [&](const auto& each) { return each.first == name; }))
      run_.fail("the argument '{}' occurs twice: remove it from the dict after '**'", name);
    arguments.named.emplace_back(name, value);
  }
  return arguments;
}

TemplateValue Evaluator::call(const CallExpr& call, TemplateScope& scope, const TemplateValue* caller) {
  const int line = run_.line();
  const TemplateValue callee = evaluate(*call.callee, scope);
  CallArguments arguments = arguments_of(call.arguments, scope);
  if (caller) arguments.named.emplace_back("caller", *caller);
  run_.set_line(line);
  TemplateValue result = call_value(run_, callee, arguments);
  run_.set_line(line);
  return result;
}

TemplateValue call_value(TemplateRun& run, const TemplateValue& callee, const CallArguments& arguments) {
  run.refuse_undefined(callee);
  if (!callee.object() || !callee.object()->is_callable())
    run.fail("a {} cannot be called: call a function or macro", callee.type_name());
  const auto level = run.enter_call();
  return callee.object()->call(run, arguments);
}

}  // namespace zt::data::jinja
