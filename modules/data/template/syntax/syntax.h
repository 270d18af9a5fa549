// The tree of a parsed template. It does not change after parsing, so several renderings may read it at the same time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "template/value/value.h"

namespace zt::data::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list, table;  // of *list and **table; null if there is none
};

struct LiteralExpr {
  TemplateValue value;
};
struct NameExpr {
  std::string name;
};
// An attribute of a namespace as the target of an assignment.
struct NamespaceTarget {
  std::string name, attribute;
};
struct SequenceExpr {
  std::vector<ExpressionPtr> items;
  bool is_tuple;
};
struct DictExpr {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator : uint8_t { negative, positive, logical_not };
struct UnaryExpr {
  UnaryOperator operation;
  ExpressionPtr operand;
};
enum class BinaryOperator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
struct BinaryExpr {
  BinaryOperator operation;
  ExpressionPtr left, right;
};
struct LogicalExpr {
  bool is_and;
  ExpressionPtr left, right;
};
struct ConcatExpr {
  std::vector<ExpressionPtr> parts;
};
enum class ComparisonOperator : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
struct ComparisonExpr {
  ExpressionPtr first;
  std::vector<std::pair<ComparisonOperator, ExpressionPtr>> others;
};
struct ConditionalExpr {
  ExpressionPtr condition, then, otherwise;  // `otherwise` may be null
};
struct AttributeExpr {
  ExpressionPtr object;
  std::string name;
  TemplateValue key;  // the name as a string
};
struct SliceExpr {
  ExpressionPtr begin, end, step;  // each may be null
};
struct ItemExpr {
  ExpressionPtr object, key;
};
struct CallExpr {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterExpr {
  ExpressionPtr operand;  // null: the text of a filter block or a set block
  std::string name;
  ArgumentList arguments;
};
struct TestExpr {
  ExpressionPtr operand;
  std::string name;
  ArgumentList arguments;
};

struct Expression {
  using Node =
      std::variant<LiteralExpr, NameExpr, NamespaceTarget, SequenceExpr, DictExpr, UnaryExpr, BinaryExpr, LogicalExpr, ConcatExpr,
                   ComparisonExpr, ConditionalExpr, AttributeExpr, SliceExpr, ItemExpr, CallExpr, FilterExpr, TestExpr>;
  Node node;
  int line;
  int height;  // of the tree. The parser bounds it, so that recursion over the tree is bounded.
};

struct Statement;
using Statements = std::vector<std::unique_ptr<const Statement>>;
using UnsetNames = std::shared_ptr<const std::vector<std::string>>;

// Statements with a scope of their own.
struct ScopedBody {
  Statements statements;
  UnsetNames unset;  // names that are undefined until the body assigns them, even if an outer variable has the name
};

struct DataStatement {
  MarkedText text;
};
struct OutputStatement {
  std::vector<ExpressionPtr> values;
};
struct IfStatement {
  std::vector<std::pair<ExpressionPtr, Statements>> branches;
  Statements otherwise;
};
struct ForStatement {
  ExpressionPtr target, iterable, condition;  // `condition` may be null
  bool is_recursive;
  ScopedBody body, otherwise;
};
struct SetStatement {
  ExpressionPtr target, value;
};
struct SetBlockStatement {
  ExpressionPtr target, filter;  // `filter` may be null
  ScopedBody body;
};
struct MacroDefinition {
  std::string name;  // empty: the body of a call block
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  ScopedBody body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};
struct MacroStatement {
  MacroDefinition macro;
};
struct CallStatement {
  MacroDefinition caller;
  ExpressionPtr call;
};
struct FilterStatement {
  ExpressionPtr filter;
  ScopedBody body;
};
struct WithStatement {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  ScopedBody body;
};
struct GenerationStatement {
  MacroDefinition body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  using Node =
      std::variant<DataStatement, OutputStatement, IfStatement, ForStatement, SetStatement, SetBlockStatement, MacroStatement,
                   CallStatement, FilterStatement, WithStatement, GenerationStatement, BreakStatement, ContinueStatement>;
  Node node;
  int line;
};

// Throws Fault, with the line, for a source that is wrong or uses what is not supported.
ScopedBody parse_template(std::string_view source, const std::string& name);

}  // namespace zt::data::jinja
