// Parses the operands of expressions: literals, names, calls, filters and tests.
#pragma once

#include "template/syntax/name_notes.h"
#include "template/syntax/syntax.h"
#include "template/syntax/token_stream.h"

namespace zt::data::jinja {

class ExpressionParser;

class OperandParser {
 public:
  // `expressions` parses what stands in brackets.
  OperandParser(TokenStream& tokens, NameNotes& notes, ExpressionParser& expressions)
      : tokens_(tokens), notes_(notes), expressions_(expressions) {}

  // Parses an operand with its sign, calls, items, filters and tests.
  ExpressionPtr parse() { return parse_unary(Filters::allowed); }
  enum class Attributes : uint8_t { allowed, refused };  // of namespaces
  // Parses what may be the target of an assignment. The caller has to check it.
  ExpressionPtr parse_target(Attributes attributes);
  // Parses a chain of filters, the first of which has no operand.
  ExpressionPtr parse_block_filters();

 private:
  enum class Filters : uint8_t { allowed, refused };
  ExpressionPtr parse_unary(Filters filters);
  ExpressionPtr parse_primary(Attributes attributes);
  ExpressionPtr parse_name(Attributes attributes);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr operand);
  ExpressionPtr parse_attribute(ExpressionPtr operand);
  ExpressionPtr parse_item(ExpressionPtr operand);
  ExpressionPtr parse_subscript();
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  ArgumentList parse_arguments();
  std::string parse_dotted_name();

  TokenStream& tokens_;
  NameNotes& notes_;
  ExpressionParser& expressions_;
  bool is_target_ = false;  // names are those of a target, so they are not read
};

}  // namespace zt::data::jinja
