// Parses expressions of templates. The grammar is that of jinja2.
#pragma once

#include "template/syntax/name_notes.h"
#include "template/syntax/operand_parser.h"
#include "template/syntax/syntax.h"
#include "template/syntax/token_stream.h"

namespace zt::data::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, NameNotes& notes) : tokens_(tokens), notes_(notes), operands_(tokens, notes, *this) {}

  enum class Conditionals : uint8_t { allowed, refused };
  // Parses one expression. Refusing conditionals leaves `if` to the statement around it.
  ExpressionPtr parse(Conditionals conditionals = Conditionals::allowed);
  // Parses one expression, or a tuple without parentheses. `end` is a name that ends the tuple as well, or empty.
  ExpressionPtr parse_tuple(Conditionals conditionals = Conditionals::allowed, std::string_view end = {});
  // Parses what stands within parentheses: one expression, or a tuple, which may be empty.
  ExpressionPtr parse_in_parentheses() {
    return parse_tuple_of([&] { return parse(); }, {}, true);
  }
  // Parses the target of an assignment: a name, a tuple of targets, or an attribute of a namespace. Note its names (NameNotes)
  // when the assignment takes place.
  ExpressionPtr parse_target(OperandParser::Attributes attributes, std::string_view end = {});
  // Parses a chain of filters, the first of which has no operand.
  ExpressionPtr parse_block_filters() { return operands_.parse_block_filters(); }

 private:
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  std::optional<ComparisonOperator> take_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_tuple_of(const std::function<ExpressionPtr()>& item, std::string_view end, bool has_parentheses);
  void check_target(const Expression& target);

  TokenStream& tokens_;
  NameNotes& notes_;
  OperandParser operands_;
};

}  // namespace zt::data::jinja
