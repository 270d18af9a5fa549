#include "template/syntax/operand_parser.h"

#include <algorithm>

#include "template/library/names.h"
#include "template/syntax/expression_parser.h"
#include "template/syntax/tree.h"

namespace zt::data::jinja {

namespace {

// Returns whether the argument of a test follows it without parentheses.
bool begins_test_operand(const TokenStream& tokens) {
  const TokenKind kind = tokens.kind();
  if (kind == TokenKind::name) return !tokens.is_name("else") && !tokens.is_name("or") && !tokens.is_name("and");
  return kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::number || tokens.is_symbol("[") ||
         tokens.is_symbol("{");
}

void check_argument_order(const TokenStream& tokens, int line, bool is_right) {
  if (!is_right)
    tokens.fail_at(line,
                   "the arguments of a call have a wrong order, or one occurs twice: positional ones come first, then those with "
                   "names, then *list and **table");
}

}  // namespace

ExpressionPtr OperandParser::parse_unary(Filters filters) {
  const int line = tokens_.line();
  const auto parse_signed = [&](UnaryOperator operation) {
    const TokenStream::Nesting nesting(tokens_);
    return make_expression(tokens_, line, UnaryExpr{operation, parse_unary(Filters::refused)});
  };
  ExpressionPtr operand;
  if (tokens_.skip_symbol("-")) operand = parse_signed(UnaryOperator::negative);
  else if (tokens_.skip_symbol("+")) operand = parse_signed(UnaryOperator::positive);
  else operand = parse_primary(Attributes::refused);
  operand = parse_postfix(std::move(operand));
  return filters == Filters::allowed ? parse_filters_and_tests(std::move(operand)) : std::move(operand);
}

ExpressionPtr OperandParser::parse_primary(Attributes attributes) {
  const int line = tokens_.line();
  switch (tokens_.kind()) {
    case TokenKind::name:
      return parse_name(attributes);
    case TokenKind::string: {
      MarkedText text;
      while (tokens_.kind() == TokenKind::string) text += tokens_.take().text;
      return make_expression(tokens_, line, LiteralExpr{std::make_shared<const TemplateString>(TemplateString{std::move(text)})});
    }
    case TokenKind::integer:
      return make_expression(tokens_, line, LiteralExpr{tokens_.take().integer});
    case TokenKind::number:
      return make_expression(tokens_, line, LiteralExpr{tokens_.take().number});
    default:
      break;
  }
  if (tokens_.skip_symbol("(")) {
    ExpressionPtr tuple = expressions_.parse_in_parentheses();
    tokens_.expect_symbol(")");
    return tuple;
  }
  if (tokens_.is_symbol("[")) return parse_list();
  if (tokens_.is_symbol("{")) return parse_dict();
  tokens_.fail("found {} where a value has to be: write a name, a literal or an expression in parentheses", tokens_.describe());
}

ExpressionPtr OperandParser::parse_target(Attributes attributes) {
  is_target_ = true;
  ExpressionPtr target = parse_primary(attributes);
  is_target_ = false;
  return target;
}

ExpressionPtr OperandParser::parse_name(Attributes attributes) {
  const int line = tokens_.line();
  const std::string name = tokens_.take().name;
  if (name == "true" || name == "True") return make_expression(tokens_, line, LiteralExpr{true});
  if (name == "false" || name == "False") return make_expression(tokens_, line, LiteralExpr{false});
  if (name == "none" || name == "None") return make_expression(tokens_, line, LiteralExpr{});
  if (attributes == Attributes::allowed && tokens_.skip_symbol("."))
    return make_expression(tokens_, line, NamespaceTarget{name, tokens_.expect_any_name()});
  if (!is_target_) notes_.note_read(name);
  return make_expression(tokens_, line, NameExpr{name});
}

ExpressionPtr OperandParser::parse_list() {
  const int line = tokens_.line();
  tokens_.expect_symbol("[");
  std::vector<ExpressionPtr> items;
  while (!tokens_.is_symbol("]")) {
    if (!items.empty()) tokens_.expect_symbol(",");
    if (tokens_.is_symbol("]")) break;
    items.push_back(expressions_.parse());
  }
  tokens_.expect_symbol("]");
  return make_expression(tokens_, line, SequenceExpr{std::move(items), false});
}

ExpressionPtr OperandParser::parse_dict() {
  const int line = tokens_.line();
  tokens_.expect_symbol("{");
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  while (!tokens_.is_symbol("}")) {
    if (!entries.empty()) tokens_.expect_symbol(",");
    if (tokens_.is_symbol("}")) break;
    ExpressionPtr key = expressions_.parse();
    tokens_.expect_symbol(":");
    entries.emplace_back(std::move(key), expressions_.parse());
  }
  tokens_.expect_symbol("}");
  return make_expression(tokens_, line, DictExpr{std::move(entries)});
}

ExpressionPtr OperandParser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    if (tokens_.is_symbol(".")) operand = parse_attribute(std::move(operand));
    else if (tokens_.is_symbol("[")) operand = parse_item(std::move(operand));
    else if (tokens_.is_symbol("(")) operand = parse_call(std::move(operand));
    else return operand;
  }
}

ExpressionPtr OperandParser::parse_filters_and_tests(ExpressionPtr operand) {
  while (true) {
    if (tokens_.skip_symbol("|")) operand = parse_filter(std::move(operand));
    else if (tokens_.is_name("is")) operand = parse_test(std::move(operand));
    else if (tokens_.is_symbol("(")) operand = parse_call(std::move(operand));
    else return operand;
  }
}

ExpressionPtr OperandParser::parse_attribute(ExpressionPtr operand) {
  const int line = tokens_.line();
  tokens_.skip();
  if (tokens_.kind() == TokenKind::integer) {
    ExpressionPtr key = make_expression(tokens_, line, LiteralExpr{tokens_.take().integer});
    return make_expression(tokens_, line, ItemExpr{std::move(operand), std::move(key)});
  }
  if (tokens_.kind() != TokenKind::name) tokens_.fail("found {} after '.': write the name of an attribute", tokens_.describe());
  const std::string name = tokens_.take().name;
  TemplateValue key = std::make_shared<const TemplateString>(TemplateString{from_utf8(name, 0).value_or(MarkedText())});
  return make_expression(tokens_, line, AttributeExpr{std::move(operand), name, std::move(key)});
}

ExpressionPtr OperandParser::parse_item(ExpressionPtr operand) {
  const int line = tokens_.line();
  tokens_.expect_symbol("[");
  std::vector<ExpressionPtr> keys;
  while (!tokens_.is_symbol("]")) {
    if (!keys.empty()) tokens_.expect_symbol(",");
    keys.push_back(parse_subscript());
  }
  tokens_.expect_symbol("]");
  for (const ExpressionPtr& each : keys)
    if (keys.size() > 1 && std::holds_alternative<SliceExpr>(each->node))
      tokens_.fail_at(line, "a slice stands in a tuple of keys: give one slice only");
  ExpressionPtr key =
      keys.size() == 1 ? std::move(keys.front()) : make_expression(tokens_, line, SequenceExpr{std::move(keys), true});
  return make_expression(tokens_, line, ItemExpr{std::move(operand), std::move(key)});
}

ExpressionPtr OperandParser::parse_subscript() {
  const int line = tokens_.line();
  SliceExpr slice;
  if (!tokens_.is_symbol(":")) {
    slice.begin = expressions_.parse();
    if (!tokens_.is_symbol(":")) return std::move(slice.begin);
  }
  tokens_.expect_symbol(":");
  const auto is_end = [&] { return tokens_.is_symbol("]") || tokens_.is_symbol(","); };
  if (!tokens_.is_symbol(":") && !is_end()) slice.end = expressions_.parse();
  if (tokens_.skip_symbol(":") && !is_end()) slice.step = expressions_.parse();
  return make_expression(tokens_, line, std::move(slice));
}

ExpressionPtr OperandParser::parse_call(ExpressionPtr callee) {
  const int line = tokens_.line();
  return make_expression(tokens_, line, CallExpr{std::move(callee), parse_arguments()});
}

ArgumentList OperandParser::parse_arguments() {
  ArgumentList arguments;
  const int line = tokens_.line();
  const auto ensure = [&](bool is_right) { check_argument_order(tokens_, line, is_right); };
  tokens_.expect_symbol("(");
  bool is_first = true;
  while (!tokens_.is_symbol(")")) {
    if (!is_first) tokens_.expect_symbol(",");
    if (!is_first && tokens_.is_symbol(")")) break;
    is_first = false;
    if (tokens_.skip_symbol("*")) {
      ensure(!arguments.list && !arguments.table);
      arguments.list = expressions_.parse();
    } else if (tokens_.skip_symbol("**")) {
      ensure(!arguments.table);
      arguments.table = expressions_.parse();
    } else if (tokens_.kind() == TokenKind::name && tokens_.is_next_symbol("=")) {
      ensure(!arguments.table);
      std::string name = tokens_.take().name;
      tokens_.skip();
      ensure(std::none_of(arguments.named.begin(), arguments.named.end(), [&](const auto& each) { return each.first == name; }));
      arguments.named.emplace_back(std::move(name), expressions_.parse());
    } else {
      ensure(!arguments.list && !arguments.table && arguments.named.empty());
      arguments.positional.push_back(expressions_.parse());
    }
  }
  tokens_.expect_symbol(")");
  return arguments;
}

std::string OperandParser::parse_dotted_name() {
  std::string name = tokens_.expect_any_name();
  while (tokens_.skip_symbol(".")) name += "." + tokens_.expect_any_name();
  return name;
}

ExpressionPtr OperandParser::parse_filter(ExpressionPtr operand) {
  const int line = tokens_.line();
  std::string name = parse_dotted_name();
  if (all_filters().count(name) == 0) notes_.note_unknown(line, unknown_filter_message(name));
  ArgumentList arguments;
  if (tokens_.is_symbol("(")) arguments = parse_arguments();
  return make_expression(tokens_, line, FilterExpr{std::move(operand), std::move(name), std::move(arguments)});
}

ExpressionPtr OperandParser::parse_block_filters() {
  ExpressionPtr filter = parse_filter(nullptr);
  while (tokens_.skip_symbol("|")) filter = parse_filter(std::move(filter));
  return filter;
}

ExpressionPtr OperandParser::parse_test(ExpressionPtr operand) {
  const int line = tokens_.line();
  tokens_.skip();
  const bool is_negated = tokens_.skip_name("not");
  std::string name = parse_dotted_name();
  if (all_tests().count(name) == 0) notes_.note_unknown(line, unknown_test_message(name));
  ArgumentList arguments;
  if (tokens_.is_symbol("(")) {
    arguments = parse_arguments();
  } else {
    if (begins_test_operand(tokens_)) {
      if (tokens_.is_name("is")) tokens_.fail("two tests follow each other: join them by `and`");
      arguments.positional.push_back(parse_postfix(parse_primary(Attributes::refused)));
    }
  }
  ExpressionPtr test = make_expression(tokens_, line, TestExpr{std::move(operand), std::move(name), std::move(arguments)});
  return is_negated ? make_expression(tokens_, line, UnaryExpr{UnaryOperator::logical_not, std::move(test)}) : std::move(test);
}

}  // namespace zt::data::jinja
