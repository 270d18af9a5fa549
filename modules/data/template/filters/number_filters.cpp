// Filters of numbers: abs, int, float, round, sum, filesizeformat.
#include <charconv>
#include <cmath>

#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/library/operators.h"
#include "template/methods/access.h"
#include "template/value/compare.h"
#include "template/value/print.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

[[noreturn]] void fail_range(TemplateRun& run) {
  run.fail("a number does not fit into 64 bits: use smaller numbers");
}

double required_float(TemplateRun& run, std::string_view filter, const TemplateValue& value) {
  run.refuse_undefined(value);
  if (const auto index = value.as_index()) return static_cast<double>(*index);
  if (!value.number()) run.fail("the filter '{}' needs a number, not a {}", filter, value.type_name());
  return *value.number();
}

int64_t integer_of_float(TemplateRun& run, double value) {
  if (!(std::abs(value) < 9.2e18)) fail_range(run);
  return static_cast<int64_t>(value);
}

// Returns the text without white space around it and without underscores between digits, or nullopt if an underscore stands
// elsewhere or a character is not ASCII.
std::optional<std::string> plain_number(MarkedView text) {
  std::string out;
  text = strip(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = code_point(text[i]);
    const auto is_alphanumeric = [&](size_t at) { return at < text.size() && is_word(text[at]) && code_point(text[at]) != '_'; };
    if (c >= 0x80) return std::nullopt;
    if (c != '_') out.push_back(static_cast<char>(c));
    else if (i == 0 || !is_alphanumeric(i - 1) || !is_alphanumeric(i + 1)) return std::nullopt;
  }
  return out;
}

// Returns int(text, base) of Python, or nullopt if the text is no such number.
std::optional<int64_t> parse_integer(TemplateRun& run, MarkedView text, int64_t base) {
  auto number = plain_number(text);
  if (!number || number->empty() || base < 0 || base == 1 || base > 36) return std::nullopt;
  const bool is_negative = number->front() == '-';
  std::string digits = number->substr(number->front() == '-' || number->front() == '+' ? 1 : 0);
  const char letter = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : 0;
  const int64_t of_prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (of_prefix != 0 && (base == of_prefix || base == 0)) {
    base = of_prefix;
    digits.erase(0, 2);
  } else if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
    base = 10;
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  if (is_negative) digits.insert(digits.begin(), '-');
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) fail_range(run);
  return value;
}

// Returns float(text) of Python, or nullopt if the text is no number.
std::optional<double> parse_float(MarkedView text) {
  const auto number = plain_number(text);
  if (!number) return std::nullopt;
  const size_t sign = !number->empty() && ((*number)[0] == '-' || (*number)[0] == '+') ? 1 : 0;
  std::string word = number->substr(sign);
  for (char& c : word) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  const bool is_word_number = word == "inf" || word == "infinity" || word == "nan";
  if (!is_word_number && (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string::npos)) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number->c_str(), &end);
  return end == number->c_str() + number->size() ? std::optional(value) : std::nullopt;
}

TemplateValue abs_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "abs", arguments);
  if (value.number()) return std::abs(*value.number());
  const auto index = value.as_index();
  if (!index) required_float(run, "abs", value);
  return *index < 0 ? apply(run, UnaryOperator::negative, value) : TemplateValue(*index);
}

TemplateValue int_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "int", arguments, {"default", "base"});
  run.refuse_undefined(value);
  const TemplateValue fallback = bound.find(0) ? *bound.find(0) : TemplateValue(int64_t{0});
  if (const auto index = value.as_index()) return *index;
  if (value.number()) return std::isnan(*value.number()) ? fallback : TemplateValue(integer_of_float(run, *value.number()));
  if (!value.text()) return fallback;
  if (const auto integer = parse_integer(run, *value.text(), bound.integer(1, 10))) return *integer;
  const auto number = parse_float(*value.text());
  return number && std::isfinite(*number) ? TemplateValue(integer_of_float(run, *number)) : fallback;
}

TemplateValue float_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "float", arguments, {"default"});
  run.refuse_undefined(value);
  if (const auto index = value.as_index()) return static_cast<double>(*index);
  if (value.number()) return value;
  if (value.text())
    if (const auto number = parse_float(*value.text())) return *number;
  return bound.find(0) ? *bound.find(0) : TemplateValue(0.0);
}

// Rounds half to even at 10^-precision, as round of Python does: by the exact decimal digits of the number.
double round_float(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < -300) return std::copysign(0.0, value);
  if (precision >= 0) return std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

int64_t round_integer(TemplateRun& run, int64_t value, int64_t precision) {
  if (precision >= 0) return value;
  if (precision < -18) return 0;
  int64_t unit = 1;
  for (; precision < 0; ++precision) unit *= 10;
  const int64_t remainder = ((value % unit) + unit) % unit, lower = value - remainder;
  const bool is_odd = (lower / unit) % 2 != 0;
  int64_t result = lower;
  const bool rounds_up = remainder > unit - remainder || (remainder == unit - remainder && is_odd);
  if (rounds_up && __builtin_add_overflow(lower, unit, &result)) fail_range(run);
  return result;
}

TemplateValue round_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const MarkedText common = from_ascii("common");
  const MarkedText& method = bound.text(1, common);
  const bool is_ceil = method == from_ascii("ceil");
  if (method != common && !is_ceil && method != from_ascii("floor"))
    run.fail("the method of 'round' is '{}', but must be common, ceil or floor", to_utf8(method));
  const double number = required_float(run, "round", value);
  if (method == common) {
    const auto index = value.as_index();
    return index ? TemplateValue(round_integer(run, *index, precision)) : TemplateValue(round_float(number, precision));
  }
  const TemplateValue unit = apply(run, BinaryOperator::power, int64_t{10}, precision);
  const TemplateValue scaled = apply(run, BinaryOperator::multiply, value, unit);
  TemplateValue rounded = scaled;
  if (scaled.number()) rounded = integer_of_float(run, is_ceil ? std::ceil(*scaled.number()) : std::floor(*scaled.number()));
  return apply(run, BinaryOperator::divide, rounded, unit);
}

TemplateValue sum_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "sum", arguments, {"attribute", "start"});
  std::optional<AttributePath> path;
  if (bound.find_given(0)) path.emplace(run, *bound.find(0));
  TemplateValue sum = bound.find(1) ? *bound.find(1) : TemplateValue(int64_t{0});
  if (sum.string()) run.fail("'sum' cannot add strings: use `join`");
  for (const TemplateValue& item : items_of(run, value))
    sum = apply(run, BinaryOperator::add, sum, path ? path->get(run, item) : item);
  return sum;
}

TemplateValue filesizeformat_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "filesizeformat", arguments, {"binary"});
  const bool is_binary = bound.truth(0, false);
  const auto parsed = value.text() ? parse_float(*value.text()) : std::nullopt;
  const double bytes = parsed ? *parsed : required_float(run, "filesizeformat", value), base = is_binary ? 1024 : 1000;
  if (bytes == 1) return run.ascii("1 Byte");
  if (bytes < base) return run.ascii(fmt::format("{} Bytes", integer_of_float(run, bytes)));
  constexpr std::string_view kPrefixes = "KMGTPEZY";
  double unit = base;
  size_t which = 0;
  for (; which + 1 < kPrefixes.size() && bytes >= unit * base; ++which) unit *= base;
  const char prefix = which == 0 && !is_binary ? 'k' : kPrefixes[which];
  return run.ascii(fmt::format("{:.1f} {}{}", base * bytes / (unit * base), prefix, is_binary ? "iB" : "B"));
}

}  // namespace

void add_number_filters(FilterTable& table) {
  table.insert({{"abs", abs_filter},
                {"filesizeformat", filesizeformat_filter},
                {"float", float_filter},
                {"int", int_filter},
                {"round", round_filter},
                {"sum", sum_filter}});
}

}  // namespace zt::data::jinja
