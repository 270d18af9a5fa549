// The operators, from the weakest to the strongest, and tuples. The operands are in operand_parser.cpp.
#include "template/syntax/expression_parser.h"

#include <algorithm>

#include "template/syntax/tree.h"

namespace zt::data::jinja {

ExpressionPtr ExpressionParser::parse(Conditionals conditionals) {
  const TokenStream::Nesting nesting(tokens_);
  return conditionals == Conditionals::allowed ? parse_conditional() : parse_or();
}

ExpressionPtr ExpressionParser::parse_conditional() {
  int line = tokens_.line();
  const size_t first_name = notes_.unknown_count();
  ExpressionPtr expression = parse_or();
  while (tokens_.skip_name("if")) {
    ExpressionPtr condition = parse_or(), otherwise;
    if (tokens_.skip_name("else")) otherwise = parse();
    expression =
        make_expression(tokens_, line, ConditionalExpr{std::move(condition), std::move(expression), std::move(otherwise)});
    notes_.forgive_unknown(first_name);
    line = tokens_.line();
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_or() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_and();
  while (tokens_.skip_name("or")) left = make_expression(tokens_, line, LogicalExpr{false, std::move(left), parse_and()});
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_not();
  while (tokens_.skip_name("and")) left = make_expression(tokens_, line, LogicalExpr{true, std::move(left), parse_not()});
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  const int line = tokens_.line();
  int count = 0;
  while (tokens_.skip_name("not")) ++count;
  ExpressionPtr operand = parse_comparison();
  for (; count > 0; --count) operand = make_expression(tokens_, line, UnaryExpr{UnaryOperator::logical_not, std::move(operand)});
  return operand;
}

std::optional<ComparisonOperator> ExpressionParser::take_comparison() {
  static constexpr std::pair<std::string_view, ComparisonOperator> kOperators[] = {
      {"==", ComparisonOperator::equal},      {"!=", ComparisonOperator::not_equal}, {"<", ComparisonOperator::less},
      {"<=", ComparisonOperator::less_equal}, {">", ComparisonOperator::greater},    {">=", ComparisonOperator::greater_equal}};
  for (const auto& [symbol, operation] : kOperators)
    if (tokens_.skip_symbol(symbol)) return operation;
  if (tokens_.skip_name("in")) return ComparisonOperator::in;
  const TemplateToken& next = tokens_.next_token();
  if (!tokens_.is_name("not") || next.kind != TokenKind::name || next.name != "in") return std::nullopt;
  tokens_.skip(), tokens_.skip();
  return ComparisonOperator::not_in;
}

ExpressionPtr ExpressionParser::parse_comparison() {
  const int line = tokens_.line();
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<ComparisonOperator, ExpressionPtr>> others;
  while (const auto operation = take_comparison()) others.emplace_back(*operation, parse_sum());
  if (others.empty()) return first;
  return make_expression(tokens_, line, ComparisonExpr{std::move(first), std::move(others)});
}

ExpressionPtr ExpressionParser::parse_sum() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_concat();
  while (tokens_.is_symbol("+") || tokens_.is_symbol("-")) {
    const auto operation = tokens_.take().name == "+" ? BinaryOperator::add : BinaryOperator::subtract;
    left = make_expression(tokens_, line, BinaryExpr{operation, std::move(left), parse_concat()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> parts;
  parts.push_back(parse_product());
  while (tokens_.skip_symbol("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts.front());
  return make_expression(tokens_, line, ConcatExpr{std::move(parts)});
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {{"*", BinaryOperator::multiply},
                                                                               {"/", BinaryOperator::divide},
                                                                               {"//", BinaryOperator::floor_divide},
                                                                               {"%", BinaryOperator::modulo}};
  const int line = tokens_.line();
  ExpressionPtr left = parse_power();
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& entry) { return tokens_.is_symbol(entry.first); });
    if (found == std::end(kOperators)) return left;
    tokens_.skip();
    left = make_expression(tokens_, line, BinaryExpr{found->second, std::move(left), parse_power()});
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  const int line = tokens_.line();
  ExpressionPtr left = operands_.parse();
  while (tokens_.skip_symbol("**"))
    left = make_expression(tokens_, line, BinaryExpr{BinaryOperator::power, std::move(left), operands_.parse()});
  return left;
}

ExpressionPtr ExpressionParser::parse_tuple_of(const std::function<ExpressionPtr()>& item, std::string_view end,
                                               bool has_parentheses) {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) tokens_.expect_symbol(",");
    const bool is_end = tokens_.kind() == TokenKind::output_end || tokens_.kind() == TokenKind::block_end ||
                        tokens_.is_symbol(")") || (!end.empty() && tokens_.is_name(end));
    if (is_end) break;
    items.push_back(item());
    if (!tokens_.is_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !has_parentheses) tokens_.fail("found {} where an expression has to be: write one", tokens_.describe());
  return make_expression(tokens_, line, SequenceExpr{std::move(items), true});
}

ExpressionPtr ExpressionParser::parse_tuple(Conditionals conditionals, std::string_view end) {
  return parse_tuple_of([&] { return parse(conditionals); }, end, false);
}

ExpressionPtr ExpressionParser::parse_target(OperandParser::Attributes attributes, std::string_view end) {
  ExpressionPtr target = parse_tuple_of([&] { return operands_.parse_target(attributes); }, end, false);
  check_target(*target);
  return target;
}

void ExpressionParser::check_target(const Expression& target) {
  if (std::holds_alternative<NamespaceTarget>(target.node)) return;
  if (const auto* name = std::get_if<NameExpr>(&target.node)) {
    if (notes_.is_in_loop() && name->name == "loop")
      tokens_.fail_at(target.line, "'loop' is assigned inside of a for loop: use another name");
    return;
  }
  const auto* tuple = std::get_if<SequenceExpr>(&target.node);
  if (!tuple || !tuple->is_tuple) tokens_.fail_at(target.line, "a value cannot be assigned to this expression: give a name");
  for (const ExpressionPtr& item : tuple->items) check_target(*item);
}

}  // namespace zt::data::jinja
