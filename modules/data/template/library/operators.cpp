#include "template/library/operators.h"

#include <cmath>

#include "template/methods/format.h"
#include "template/value/compare.h"
#include "template/value/print.h"

namespace zt::data::jinja {

namespace {

constexpr const char* kBinaryNames[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_overflow(TemplateRun& run) {
  run.fail("a number does not fit into 64 bits, or is no real number: use smaller numbers");
}

[[noreturn]] void fail_division(TemplateRun& run) {
  run.fail("a number is divided by zero: check the divisor first");
}

[[noreturn]] void fail_types(TemplateRun& run, BinaryOperator operation, const TemplateValue& left, const TemplateValue& right) {
  run.fail("'{}' cannot combine a {} and a {}: convert one of them, such as by the filter `string` or `int`",
           kBinaryNames[static_cast<int>(operation)], left.type_name(), right.type_name());
}

int64_t integer_power(TemplateRun& run, int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow(run);
  return result;
}

TemplateValue float_power(TemplateRun& run, double base, double exponent) {
  if (base == 0 && exponent < 0) fail_division(run);
  const double result = std::pow(base, exponent);
  const bool is_finite = std::isfinite(base) && std::isfinite(exponent);
  if (is_finite && !std::isfinite(result)) fail_overflow(run);
  return result;
}

// Returns the quotient rounded down and the remainder with the sign of the divisor.
std::pair<double, double> float_floor(double left, double right) {
  double remainder = std::fmod(left, right), quotient = (left - remainder) / right;
  if (remainder == 0) {
    remainder = std::copysign(0.0, right);
  } else if ((right < 0) != (remainder < 0)) {
    remainder += right;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, left / right), remainder};
  const double floor = std::floor(quotient);
  return {quotient - floor > 0.5 ? floor + 1 : floor, remainder};
}

TemplateValue of_integers(TemplateRun& run, BinaryOperator operation, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (operation) {
    case BinaryOperator::add:
      if (__builtin_add_overflow(left, right, &result)) fail_overflow(run);
      return result;
    case BinaryOperator::subtract:
      if (__builtin_sub_overflow(left, right, &result)) fail_overflow(run);
      return result;
    case BinaryOperator::multiply:
      if (__builtin_mul_overflow(left, right, &result)) fail_overflow(run);
      return result;
    case BinaryOperator::power:
      if (right < 0) return float_power(run, static_cast<double>(left), static_cast<double>(right));
      return integer_power(run, left, right);
    default:
      break;
  }
  if (right == 0) fail_division(run);
  if (operation == BinaryOperator::divide)
    return static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right));
  if (right == -1) {  // the quotient of the smallest integer would overflow
    if (operation == BinaryOperator::modulo) return int64_t{0};
    if (__builtin_sub_overflow(int64_t{0}, left, &result)) fail_overflow(run);
    return result;
  }
  const int64_t remainder = left % right, quotient = left / right;
  const bool is_rounded_up = remainder != 0 && (remainder < 0) != (right < 0);
  if (operation == BinaryOperator::modulo) return is_rounded_up ? remainder + right : remainder;
  return is_rounded_up ? quotient - 1 : quotient;
}

TemplateValue of_floats(TemplateRun& run, BinaryOperator operation, double left, double right) {
  switch (operation) {
    case BinaryOperator::add:
      return left + right;
    case BinaryOperator::subtract:
      return left - right;
    case BinaryOperator::multiply:
      return left * right;
    case BinaryOperator::power:
      if (left < 0 && std::isfinite(right) && right != std::floor(right)) fail_overflow(run);
      return float_power(run, left, right);
    default:
      break;
  }
  if (right == 0) fail_division(run);
  if (operation == BinaryOperator::divide) return left / right;
  const auto [quotient, remainder] = float_floor(left, right);
  return operation == BinaryOperator::modulo ? remainder : quotient;
}

std::optional<double> float_of(const TemplateValue& value) {
  if (const auto index = value.as_index()) return static_cast<double>(*index);
  if (const double* number = value.number()) return *number;
  return std::nullopt;
}

TemplateValue add_strings(TemplateRun& run, const TemplateString& left, const TemplateString& right) {
  run.check_length(left.text.size() + right.text.size());
  const bool is_markup = left.is_markup || right.is_markup;
  if (left.is_markup == right.is_markup) return run.text(left.text + right.text, is_markup);
  const MarkedText escaped = escape_html(left.is_markup ? right.text : left.text);
  return run.text(left.is_markup ? left.text + escaped : escaped + right.text, true);
}

TemplateValue add_lists(TemplateRun& run, const TemplateList& left, const TemplateList& right) {
  std::vector<TemplateValue> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return run.list(std::move(items), left.is_tuple);
}

TemplateValue repeat(TemplateRun& run, const TemplateValue& value, int64_t count) {
  const size_t times = count > 0 ? static_cast<size_t>(count) : 0;
  const size_t size = static_cast<size_t>(length_of(run, value).value_or(0));
  size_t total = 0;
  if (__builtin_mul_overflow(times, size, &total)) total = kMaxLength + 1;
  run.check_length(total);
  if (const TemplateString* string = value.string()) {
    MarkedText text;
    text.reserve(total);
    for (size_t i = 0; text.size() < total; ++i) text += string->text;
    return run.text(std::move(text), string->is_markup);
  }
  std::vector<TemplateValue> items;
  items.reserve(total);
  while (items.size() < total) items.insert(items.end(), value.list()->items.begin(), value.list()->items.end());
  return run.list(std::move(items), value.list()->is_tuple);
}

bool is_repeatable(const TemplateValue& value) {
  return value.string() || value.list();
}

}  // namespace

MarkedText escape_html(MarkedView text) {
  MarkedText out;
  for (const char32_t character : text) {
    const char32_t marks = marks_of(character);
    switch (code_point(character)) {
      case '&':
        append_ascii("&amp;", marks, out);
        break;
      case '<':
        append_ascii("&lt;", marks, out);
        break;
      case '>':
        append_ascii("&gt;", marks, out);
        break;
      case '\'':
        append_ascii("&#39;", marks, out);
        break;
      case '"':
        append_ascii("&#34;", marks, out);
        break;
      default:
        out.push_back(character);
    }
  }
  return out;
}

TemplateValue apply(TemplateRun& run, BinaryOperator operation, const TemplateValue& left, const TemplateValue& right) {
  if (operation == BinaryOperator::modulo && left.string()) return format_percent(run, *left.string(), right);
  run.refuse_undefined(left);
  run.refuse_undefined(right);
  const auto left_index = left.as_index(), right_index = right.as_index();
  if (left_index && right_index) return of_integers(run, operation, *left_index, *right_index);
  const auto left_number = float_of(left), right_number = float_of(right);
  if (left_number && right_number) return of_floats(run, operation, *left_number, *right_number);
  if (operation == BinaryOperator::add) {
    if (left.string() && right.string()) return add_strings(run, *left.string(), *right.string());
    if (left.list() && right.list() && left.list()->is_tuple == right.list()->is_tuple)
      return add_lists(run, *left.list(), *right.list());
  }
  if (operation == BinaryOperator::multiply) {
    if (is_repeatable(left) && right_index) return repeat(run, left, *right_index);
    if (is_repeatable(right) && left_index) return repeat(run, right, *left_index);
  }
  fail_types(run, operation, left, right);
}

TemplateValue apply(TemplateRun& run, UnaryOperator operation, const TemplateValue& operand) {
  run.refuse_undefined(operand);
  const bool is_negative = operation == UnaryOperator::negative;
  if (const auto index = operand.as_index())
    return of_integers(run, is_negative ? BinaryOperator::subtract : BinaryOperator::add, 0, *index);
  if (const double* number = operand.number()) return is_negative ? -*number : *number;
  run.fail("'{}' needs a number, not a {}", is_negative ? "-" : "+", operand.type_name());
}

}  // namespace zt::data::jinja
