// The statements of the evaluator.
#include "template/evaluator.h"
#include "template/library/objects.h"
#include "template/loop.h"
#include "template/macro.h"
#include "template/value/compare.h"
#include "template/value/print.h"

namespace zt::data::jinja {

struct StatementVisitor {
  using Flow = Evaluator::Flow;

  Evaluator& evaluator;
  TemplateScope& scope;
  TemplateRun& run;

  TemplateValue evaluate(const ExpressionPtr& expression) { return evaluator.evaluate(*expression, scope); }
  // Writes the result of a call block, a filter block or a recursive loop, which has to be a string.
  void write_block(std::string_view statement, const TemplateValue& value) {
    if (!value.text()) run.fail("the block '{}' gives a {}, but a block has to give a string", statement, value.type_name());
    evaluator.write(*value.text());
  }

  Flow operator()(const DataStatement& data) {
    evaluator.write(data.text);
    return Flow::normal;
  }

  Flow operator()(const OutputStatement& output) {
    for (const auto& value : output.values) evaluator.write(text_of(run, evaluate(value)));
    return Flow::normal;
  }

  Flow operator()(const IfStatement& statement) {
    for (const auto& [condition, body] : statement.branches)
      if (is_true(run, evaluate(condition))) return evaluator.execute(body, scope);
    return evaluator.execute(statement.otherwise, scope);
  }

  Flow operator()(const ForStatement& loop) {
    const TemplateValue iterable = evaluate(loop.iterable);
    if (loop.is_recursive) {
      write_block("for", evaluator.render_loop(loop, iterable, scope, 0));
      return Flow::normal;
    }
    return evaluator.run_loop(loop, iterable, scope, 0);
  }

  Flow operator()(const SetStatement& statement) {
    evaluator.assign(*statement.target, evaluate(statement.value), scope);
    return Flow::normal;
  }

  Flow operator()(const SetBlockStatement& statement) {
    Flow flow = Flow::normal;
    TemplateScope& inner = evaluator.make_scope(statement.body, scope);
    MarkedText captured = evaluator.capture(statement.body.statements, inner, flow);
    if (flow != Flow::normal) return flow;
    const TemplateValue value =
        statement.filter ? evaluator.filter_block(*statement.filter, std::move(captured), inner) : run.text(std::move(captured));
    evaluator.assign(*statement.target, value, scope);
    return Flow::normal;
  }

  Flow operator()(const MacroStatement& statement) {
    scope.set(statement.macro.name, run.make<MacroObject>(evaluator, statement.macro, scope));
    return Flow::normal;
  }

  Flow operator()(const CallStatement& statement) {
    const TemplateValue caller = run.make<MacroObject>(evaluator, statement.caller, scope);
    run.set_line(statement.call->line);
    write_block("call", evaluator.call(std::get<CallExpr>(statement.call->node), scope, &caller));
    return Flow::normal;
  }

  Flow operator()(const FilterStatement& statement) {
    Flow flow = Flow::normal;
    TemplateScope& inner = evaluator.make_scope(statement.body, scope);
    MarkedText captured = evaluator.capture(statement.body.statements, inner, flow);
    if (flow != Flow::normal) return flow;
    write_block("filter", evaluator.filter_block(*statement.filter, std::move(captured), inner));
    return Flow::normal;
  }

  Flow operator()(const WithStatement& statement) {
    TemplateScope& inner = evaluator.make_scope(statement.body, scope);
    for (const auto& [target, value] : statement.assignments) evaluator.assign(*target, evaluate(value), inner);
    return evaluator.execute(statement.body.statements, inner);
  }

  Flow operator()(const GenerationStatement& statement) {
    const auto level = run.enter_call();
    MarkedText answer = *evaluator.call_macro(statement.body, scope, {}).text();
    evaluator.write(with_marks(std::move(answer), kInAnswer));
    return Flow::normal;
  }

  Flow operator()(const BreakStatement&) { return Flow::breaks; }
  Flow operator()(const ContinueStatement&) { return Flow::continues; }
};

MarkedText Evaluator::render(const ScopedBody& body, const TemplateScope& inputs) {
  execute(body.statements, make_scope(body, inputs));
  return std::move(out_);
}

TemplateScope& Evaluator::make_scope(const ScopedBody& body, const TemplateScope& outer) {
  auto* const scope = run_.make<TemplateScope>(&outer);
  if (body.unset)
    for (const std::string& name : *body.unset)
      scope->set(name, run_.undefined(message("'{}' is undefined, because it is assigned later", name)));
  return *scope;
}

Evaluator::Flow Evaluator::execute(const Statements& statements, TemplateScope& scope) {
  const auto level = run_.enter_evaluation();
  for (const auto& statement : statements) {
    run_.set_line(statement->line);
    run_.charge(1);
    const Flow flow = std::visit(StatementVisitor{*this, scope, run_}, statement->node);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

void Evaluator::write(MarkedView text) {
  run_.charge_text(text.size());
  if (out_.size() + text.size() > kMaxLength)
    run_.fail("the output is longer than {} bytes, the limit: make the messages shorter", kMaxLength);
  out_ += text;
}

MarkedText Evaluator::capture(const Statements& statements, TemplateScope& scope, Flow& flow) {
  MarkedText outer = std::exchange(out_, MarkedText());
  flow = execute(statements, scope);
  return std::exchange(out_, std::move(outer));
}

TemplateValue Evaluator::filter_block(const Expression& filter, MarkedText text, TemplateScope& scope) {
  const TemplateValue operand = run_.text(std::move(text));
  const TemplateValue* const outer = std::exchange(block_text_, &operand);
  TemplateValue result = evaluate(filter, scope);
  block_text_ = outer;
  return result;
}

void Evaluator::assign(const Expression& target, const TemplateValue& value, TemplateScope& scope) {
  if (const auto* name = std::get_if<NameExpr>(&target.node)) return scope.set(name->name, value);
  if (const auto* attribute = std::get_if<NamespaceTarget>(&target.node)) {
    const TemplateValue* const object = scope.find(attribute->name);
    auto* const space = object ? dynamic_cast<NamespaceObject*>(object->object()) : nullptr;
    if (!space)
      run_.fail("'{}' is no namespace, so its attribute '{}' cannot be set: write {{% set {} = namespace() %}} first",
                attribute->name, attribute->attribute, attribute->name);
    return space->set(run_, attribute->attribute, value);
  }
  const auto& targets = std::get<SequenceExpr>(target.node).items;
  const auto items = items_of(run_, value);
  if (items.size() != targets.size())
    run_.fail("{} cannot be unpacked into {}: give as many names as values", counted(static_cast<int64_t>(items.size()), "value"),
              counted(static_cast<int64_t>(targets.size()), "name"));
  for (size_t i = 0; i < items.size(); ++i) assign(*targets[i], items[i], scope);
}

}  // namespace zt::data::jinja
