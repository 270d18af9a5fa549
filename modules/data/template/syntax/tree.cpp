#include "template/syntax/tree.h"

#include <algorithm>

namespace zt::data::jinja {

namespace {

// The recursion of destructors and of the evaluator is bounded by it.
constexpr int kMaxTreeHeight = 200;

int height_of(const ExpressionPtr& expression) {
  return expression ? expression->height : 0;
}

int height_of(const ArgumentList& arguments) {
  int height = std::max(height_of(arguments.list), height_of(arguments.table));
  for (const auto& argument : arguments.positional) height = std::max(height, height_of(argument));
  for (const auto& [name, argument] : arguments.named) height = std::max(height, height_of(argument));
  return height;
}

struct HeightVisitor {
  int operator()(const LiteralExpr&) const { return 0; }
  int operator()(const NameExpr&) const { return 0; }
  int operator()(const NamespaceTarget&) const { return 0; }
  int operator()(const SequenceExpr& node) const { return of_all(node.items); }
  int operator()(const DictExpr& node) const {
    int height = 0;
    for (const auto& [key, value] : node.entries) height = std::max({height, height_of(key), height_of(value)});
    return height;
  }
  int operator()(const UnaryExpr& node) const { return height_of(node.operand); }
  int operator()(const BinaryExpr& node) const { return std::max(height_of(node.left), height_of(node.right)); }
  int operator()(const LogicalExpr& node) const { return std::max(height_of(node.left), height_of(node.right)); }
  int operator()(const ConcatExpr& node) const { return of_all(node.parts); }
  int operator()(const ComparisonExpr& node) const {
    int height = height_of(node.first);
    for (const auto& [operation, operand] : node.others) height = std::max(height, height_of(operand));
    return height;
  }
  int operator()(const ConditionalExpr& node) const {
    return std::max({height_of(node.condition), height_of(node.then), height_of(node.otherwise)});
  }
  int operator()(const AttributeExpr& node) const { return height_of(node.object); }
  int operator()(const SliceExpr& node) const {
    return std::max({height_of(node.begin), height_of(node.end), height_of(node.step)});
  }
  int operator()(const ItemExpr& node) const { return std::max(height_of(node.object), height_of(node.key)); }
  int operator()(const CallExpr& node) const { return std::max(height_of(node.callee), height_of(node.arguments)); }
  int operator()(const FilterExpr& node) const { return std::max(height_of(node.operand), height_of(node.arguments)); }
  int operator()(const TestExpr& node) const { return std::max(height_of(node.operand), height_of(node.arguments)); }

  static int of_all(const std::vector<ExpressionPtr>& expressions) {
    int height = 0;
    for (const auto& expression : expressions) height = std::max(height, height_of(expression));
    return height;
  }
};

}  // namespace

ExpressionPtr make_expression(const TokenStream& tokens, int line, Expression::Node node) {
  const int height = 1 + std::visit(HeightVisitor(), node);
  if (height > kMaxTreeHeight)
    tokens.fail_at(line, "an expression has more than {} operators in a chain, the limit: use {{% set %}} to divide it",
                   kMaxTreeHeight);
  return std::make_unique<const Expression>(Expression{std::move(node), line, height});
}

}  // namespace zt::data::jinja
