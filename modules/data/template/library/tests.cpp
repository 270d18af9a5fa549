// The tests of jinja2, which stand after `is`.
#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/library/operators.h"
#include "template/value/compare.h"
#include "template/value/print.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

// Makes a test without arguments of a function of the value.
template <bool (*function)(TemplateRun&, const TemplateValue&)>
bool plain_test(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "a test", arguments);
  return function(run, value);
}

bool has_remainder(TemplateRun& run, const TemplateValue& value, const TemplateValue& divisor, int64_t remainder) {
  return is_equal(run, apply(run, BinaryOperator::modulo, value, divisor), remainder);
}

bool is_odd(TemplateRun& run, const TemplateValue& value) {
  return has_remainder(run, value, int64_t{2}, 1);
}
bool is_even(TemplateRun& run, const TemplateValue& value) {
  return has_remainder(run, value, int64_t{2}, 0);
}
bool is_defined(TemplateRun&, const TemplateValue& value) {
  return !value.is_undefined();
}
bool is_undefined(TemplateRun&, const TemplateValue& value) {
  return value.is_undefined();
}
bool is_none(TemplateRun&, const TemplateValue& value) {
  return value.is_none();
}
bool is_boolean(TemplateRun&, const TemplateValue& value) {
  return value.boolean() != nullptr;
}
bool is_false_value(TemplateRun&, const TemplateValue& value) {
  return value.boolean() && !*value.boolean();
}
bool is_true_value(TemplateRun&, const TemplateValue& value) {
  return value.boolean() && *value.boolean();
}
bool is_integer(TemplateRun&, const TemplateValue& value) {
  return value.integer() != nullptr;
}
bool is_float(TemplateRun&, const TemplateValue& value) {
  return value.number() != nullptr;
}
bool is_number(TemplateRun&, const TemplateValue& value) {
  return value.as_index() || value.number();
}
bool is_string(TemplateRun&, const TemplateValue& value) {
  return value.is_string();
}
bool is_mapping(TemplateRun&, const TemplateValue& value) {
  return value.dict() != nullptr;
}
bool is_iterable(TemplateRun& run, const TemplateValue& value) {
  return iterate(run, value) != nullptr;
}
bool is_escaped(TemplateRun&, const TemplateValue& value) {
  return value.string() && value.string()->is_markup;
}
bool is_lower_value(TemplateRun& run, const TemplateValue& value) {
  return is_lower_text(text_of(run, value));
}
bool is_upper_value(TemplateRun& run, const TemplateValue& value) {
  return is_upper_text(text_of(run, value));
}

bool is_callable(TemplateRun&, const TemplateValue& value) {
  return value.is_undefined() || (value.object() && value.object()->is_callable());
}

bool is_sequence(TemplateRun&, const TemplateValue& value) {
  return value.string() || value.list() || value.dict() || value.is_undefined() ||
         (value.object() && value.object()->is_sequence());
}

bool is_filter(TemplateRun& run, const TemplateValue& value) {
  if (!hash_of(run, value)) run.fail("a {} cannot be the name of a filter: give a string", value.type_name());
  return value.text() && all_filters().count(to_utf8(*value.text())) > 0;
}

bool is_test(TemplateRun& run, const TemplateValue& value) {
  if (!hash_of(run, value)) run.fail("a {} cannot be the name of a test: give a string", value.type_name());
  return value.text() && all_tests().count(to_utf8(*value.text())) > 0;
}

// Makes a test with one argument of a function of both values.
template <bool (*function)(TemplateRun&, const TemplateValue&, const TemplateValue&)>
bool binary_test(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "a test", arguments, {"other"}, 1, NamedArguments::refused);
  return function(run, value, bound[0]);
}

bool is_divisible(TemplateRun& run, const TemplateValue& value, const TemplateValue& divisor) {
  return has_remainder(run, value, divisor, 0);
}
bool is_unequal(TemplateRun& run, const TemplateValue& left, const TemplateValue& right) {
  return !is_equal(run, left, right);
}
bool is_in(TemplateRun& run, const TemplateValue& value, const TemplateValue& container) {
  return contains(run, container, value);
}
bool is_same_object(TemplateRun&, const TemplateValue& left, const TemplateValue& right) {
  return is_same(left, right);
}

template <Order order>
bool has_order(TemplateRun& run, const TemplateValue& left, const TemplateValue& right) {
  return compare(run, order, left, right);
}

}  // namespace

const TestTable& all_tests() {
  static const TestTable table = {
      {"!=", binary_test<is_unequal>},
      {"<", binary_test<has_order<Order::less>>},
      {"<=", binary_test<has_order<Order::less_equal>>},
      {"==", binary_test<is_equal>},
      {">", binary_test<has_order<Order::greater>>},
      {">=", binary_test<has_order<Order::greater_equal>>},
      {"boolean", plain_test<is_boolean>},
      {"callable", plain_test<is_callable>},
      {"defined", plain_test<is_defined>},
      {"divisibleby", binary_test<is_divisible>},
      {"eq", binary_test<is_equal>},
      {"equalto", binary_test<is_equal>},
      {"escaped", plain_test<is_escaped>},
      {"even", plain_test<is_even>},
      {"false", plain_test<is_false_value>},
      {"filter", plain_test<is_filter>},
      {"float", plain_test<is_float>},
      {"ge", binary_test<has_order<Order::greater_equal>>},
      {"greaterthan", binary_test<has_order<Order::greater>>},
      {"gt", binary_test<has_order<Order::greater>>},
      {"in", binary_test<is_in>},
      {"integer", plain_test<is_integer>},
      {"iterable", plain_test<is_iterable>},
      {"le", binary_test<has_order<Order::less_equal>>},
      {"lessthan", binary_test<has_order<Order::less>>},
      {"lower", plain_test<is_lower_value>},
      {"lt", binary_test<has_order<Order::less>>},
      {"mapping", plain_test<is_mapping>},
      {"ne", binary_test<is_unequal>},
      {"none", plain_test<is_none>},
      {"number", plain_test<is_number>},
      {"odd", plain_test<is_odd>},
      {"sameas", binary_test<is_same_object>},
      {"sequence", plain_test<is_sequence>},
      {"string", plain_test<is_string>},
      {"test", plain_test<is_test>},
      {"true", plain_test<is_true_value>},
      {"undefined", plain_test<is_undefined>},
      {"upper", plain_test<is_upper_value>},
  };
  return table;
}

}  // namespace zt::data::jinja
