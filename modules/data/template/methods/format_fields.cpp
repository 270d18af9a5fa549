// The fields of both formats: numbers and strings with a width, a precision and a type.
#include <algorithm>
#include <cmath>

#include "template/methods/format.h"
#include "template/value/print.h"

namespace zt::data::jinja {

namespace {

void group_digits(std::string& digits, char separator, size_t group) {
  const std::string_view accepted = group == 3 ? "0123456789" : "0123456789abcdefABCDEF";
  const size_t end = std::min(digits.find_first_not_of(accepted), digits.size());
  for (size_t at = end; at > group; at -= group) digits.insert(at - group, 1, separator);
}

std::string upper_ascii(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return text;
}

std::string radix_digits(uint64_t value, unsigned base) {
  std::string digits;
  do digits.insert(digits.begin(), "0123456789abcdef"[value % base]);
  while ((value /= base) > 0);
  return digits;
}

constexpr int kMaxPrecision = 300;

// printf of C, with `precision` digits and the letter `type`. Python has the same results.
std::string printf_digits(double value, int precision, char type, bool is_alternate) {
  const char format[] = {'%', is_alternate ? '#' : '+', '.', '*', type, 0};
  const int length = std::snprintf(nullptr, 0, format, precision, value);
  std::string digits(static_cast<size_t>(length) + 1, 0);
  std::snprintf(digits.data(), digits.size(), format, precision, value);
  digits.pop_back();
  if (!digits.empty() && digits.front() == '+') digits.erase(0, 1);
  return digits;
}

// As 'g', but with at least one digit after the point, or else with an exponent.
std::string short_digits(double value, int precision) {
  std::string scientific = printf_digits(value, precision - 1, 'e', false);
  const size_t at = scientific.find('e');
  if (std::stoi(scientific.substr(at + 1)) >= precision - 1 && value != 0) {
    std::string digits = scientific.substr(0, at);
    if (digits.find('.') != std::string::npos) digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
    return digits + scientific.substr(at);
  }
  const std::string digits = printf_digits(value, precision, 'g', false);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

std::string typed_digits(double value, int precision, const FieldLayout& layout) {
  const char lower = static_cast<char>(layout.type | 0x20), type = lower == 'n' ? 'g' : lower;
  return printf_digits(value, type == 'g' ? std::max(precision, 1) : precision, type, layout.is_alternate);
}

MarkedText pad(TemplateRun& run, MarkedView left, MarkedView right, char align, const FieldLayout& layout) {
  run.check_length(layout.width);
  const size_t length = left.size() + right.size();
  const size_t missing = layout.width > length ? layout.width - length : 0;
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0, inside = align == '=' ? missing : 0;
  MarkedText out(before, layout.fill);
  out.append(left).append(inside, layout.fill).append(right);
  return out.append(missing - before - inside, layout.fill);
}

}  // namespace

std::string integer_digits(int64_t value, const FieldLayout& layout) {
  const uint64_t magnitude = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const unsigned base = layout.type == 'b' ? 2 : layout.type == 'o' ? 8 : layout.type == 'x' || layout.type == 'X' ? 16 : 10;
  std::string digits = radix_digits(magnitude, base);
  if (layout.type == 'X') digits = upper_ascii(std::move(digits));
  if (layout.grouping) group_digits(digits, layout.grouping, base == 10 ? 3 : 4);
  return digits;
}

std::string float_digits(TemplateRun& run, double value, const FieldLayout& layout) {
  const double magnitude = std::abs(value);
  const int precision = layout.precision.value_or(6);
  if (precision > kMaxPrecision)
    run.fail("the precision {} of a number is above {}, the limit: use a smaller one", precision, kMaxPrecision);
  std::string digits;
  if (!std::isfinite(magnitude)) digits = std::isnan(magnitude) ? "nan" : "inf";
  else if (layout.type == 0) digits = layout.precision ? short_digits(magnitude, std::max(precision, 1)) : float_text(magnitude);
  else if (layout.type == '%') digits = printf_digits(magnitude * 100, precision, 'f', layout.is_alternate);
  else digits = typed_digits(magnitude, precision, layout);
  if (layout.type == '%') digits += '%';
  if (layout.type >= 'A' && layout.type <= 'Z') digits = upper_ascii(std::move(digits));
  if (layout.grouping) group_digits(digits, layout.grouping, 3);
  return digits;
}

MarkedText lay_out_number(TemplateRun& run, bool is_negative, std::string prefix, std::string digits, const FieldLayout& layout) {
  const std::string sign = is_negative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
  FieldLayout adapted = layout;
  char align = layout.align ? layout.align : '>';
  if (layout.has_zeros && !layout.align) align = '=', adapted.fill = '0';
  if (align == '=' && adapted.fill == '0' && layout.grouping) {
    if (layout.width > kMaxPrecision) run.fail("the width {} of a number is above {}, the limit", layout.width, kMaxPrecision);
    const size_t group = std::string_view("boxX").find(layout.type) != std::string_view::npos && layout.type ? 4 : 3;
    std::erase(digits, layout.grouping);
    std::string grouped = digits;
    group_digits(grouped, layout.grouping, group);
    while (sign.size() + prefix.size() + grouped.size() < layout.width) {
      digits.insert(0, 1, '0');
      grouped = digits;
      group_digits(grouped, layout.grouping, group);
    }
    digits = std::move(grouped);
  }
  return pad(run, from_ascii(sign + prefix), from_ascii(digits), align, adapted);
}

MarkedText lay_out_text(TemplateRun& run, MarkedView text, const FieldLayout& layout) {
  if (layout.precision) text = text.substr(0, static_cast<size_t>(*layout.precision));
  FieldLayout adapted = layout;
  if (layout.has_zeros && !layout.align) adapted.fill = '0';
  return pad(run, {}, text, layout.align ? layout.align : '<', adapted);
}

}  // namespace zt::data::jinja
