// The operator % of strings: printf of Python.
#include <cmath>

#include "template/library/operators.h"
#include "template/methods/format.h"
#include "template/value/compare.h"
#include "template/value/print.h"

namespace zt::data::jinja {

namespace {

class PercentFormatter {
 public:
  PercentFormatter(TemplateRun& run, const TemplateString& format, const TemplateValue& value)
      : run_(run), format_(format.text), is_markup_(format.is_markup), value_(value) {}

  MarkedText format() {
    while (at_ < format_.size()) {
      const char32_t character = format_[at_++];
      if (code_point(character) == '%') write_field();
      else out_.push_back(character);
    }
    const TemplateList* tuple = value_.list();
    const bool is_tuple = tuple && tuple->is_tuple;
    // Python does not mind values that are not used if they have items by key or index.
    const bool has_items =
        value_.dict() || value_.is_undefined() || (tuple && !is_tuple) || (value_.object() && value_.object()->is_sequence());
    const size_t given = is_tuple ? tuple->items.size() : has_items || used_mapping_ ? next_ : 1;
    if (next_ < given) run_.fail("the format has fewer fields than values ({}): add fields, or remove values", given);
    return std::move(out_);
  }

 private:
  char32_t peek() const { return at_ < format_.size() ? code_point(format_[at_]) : 0; }
  char32_t take() {
    if (at_ >= format_.size()) run_.fail("the format ends inside of a field: write %% for a percent sign");
    return code_point(format_[at_++]);
  }

  const TemplateValue& next_value() {
    const TemplateList* tuple = value_.list();
    const size_t index = next_++;
    if (tuple && tuple->is_tuple && index < tuple->items.size()) return tuple->items[index];
    if ((tuple && tuple->is_tuple) || index > 0) run_.fail("the format has more fields than values: give a tuple of all values");
    return value_;
  }

  std::optional<TemplateValue> read_key() {
    if (peek() != '(') return std::nullopt;
    ++at_;
    MarkedText key;
    for (int open = 1; open > 0;) {
      const char32_t character = take();
      open += character == '(' ? 1 : character == ')' ? -1 : 0;
      if (open > 0) key.push_back(character);
    }
    if (!value_.dict()) run_.fail("the format has a field with a name: give a dict after %");
    used_mapping_ = true;
    const TemplateValue* const found = value_.dict()->find(run_, run_.text(key));
    if (!found) run_.fail("the dict after % has no key '{}'", to_utf8(key));
    return *found;
  }

  int64_t read_number() {
    if (peek() == '*') {
      ++at_;
      const auto number = next_value().as_index();
      if (!number) run_.fail("'*' in a format needs an integer");
      return *number;
    }
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + static_cast<int64_t>(take() - '0');
      run_.check_length(static_cast<size_t>(number));
    }
    return number;
  }

  void read_flags(FieldLayout& layout, bool& is_left) {
    while (true) {
      const char32_t flag = peek();
      if (flag == '-') is_left = true;
      else if (flag == '+') layout.sign = '+';
      else if (flag == ' ') layout.sign = layout.sign == '+' ? '+' : ' ';
      else if (flag == '#') layout.is_alternate = true;
      else if (flag == '0') layout.has_zeros = true;
      else return;
      ++at_;
    }
  }

  void write_field() {
    if (peek() == '%') {
      out_.push_back(format_[at_++]);
      return;
    }
    const auto keyed = read_key();
    FieldLayout layout;
    bool is_left = false;
    read_flags(layout, is_left);
    const int64_t width = read_number();
    is_left = is_left || width < 0;
    layout.width = static_cast<size_t>(std::abs(width));
    run_.check_length(layout.width);
    if (peek() == '.') {
      ++at_;
      const int64_t precision = read_number();
      run_.check_length(static_cast<size_t>(std::max<int64_t>(precision, 0)));
      layout.precision = static_cast<int>(std::max<int64_t>(precision, 0));
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    const char32_t type = take();
    if (type == '%') {
      out_.push_back('%');
      return;
    }
    if (type >= 0x80 || std::string_view("sradiuxXoeEfFgGc").find(static_cast<char>(type)) == std::string_view::npos)
      run_.fail("a format has the unknown field type '{}': known are s, r, a, d, i, u, x, X, o, e, E, f, F, g, G and c",
                to_utf8(MarkedText(1, type)));
    layout.type = static_cast<char>(type);
    layout.align = is_left ? '<' : 0;
    const TemplateValue value = keyed ? *keyed : next_value();
    out_ += field(value, layout);
    run_.check_length(out_.size());
  }

  MarkedText field(const TemplateValue& value, FieldLayout layout) {
    switch (layout.type) {
      case 's':
      case 'r':
      case 'a':
        return text_field(value, layout);
      case 'c':
        return character_field(value, layout);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer_field(value, layout);
      default:
        return float_field(value, layout);
    }
  }

  MarkedText text_field(const TemplateValue& value, FieldLayout layout) {
    MarkedText text = layout.type == 's' ? text_of(run_, value) : repr_of(run_, value);
    if (layout.type == 'a') {
      MarkedText escaped;
      for (const char32_t character : text) {
        const auto c = static_cast<uint32_t>(code_point(character));
        if (c < 0x80) escaped.push_back(character);
        else
          append_ascii(c < 0x100     ? fmt::format("\\x{:02x}", c)
                       : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                                     : fmt::format("\\U{:08x}", c),
                       marks_of(character), escaped);
      }
      text = std::move(escaped);
    }
    if (is_markup_ && !(value.string() && value.string()->is_markup)) text = escape_html(text);
    if (!layout.align) layout.align = '>';
    return lay_out_text(run_, text, layout);
  }

  MarkedText character_field(const TemplateValue& value, FieldLayout layout) {
    MarkedText text;
    if (const MarkedText* given = value.text(); given && given->size() == 1) text = *given;
    else if (const auto code = value.as_index(); code && *code >= 0 && *code <= 0x10FFFF)
      text.push_back(static_cast<char32_t>(*code));
    else run_.fail("the field %c needs a character or its code point");
    layout.precision.reset();
    if (!layout.align) layout.align = '>';
    return lay_out_text(run_, text, layout);
  }

  MarkedText integer_field(const TemplateValue& value, FieldLayout layout) {
    run_.refuse_undefined(value);
    const bool is_decimal_type = std::string_view("diu").find(layout.type) != std::string_view::npos;
    auto number = value.as_index();
    if (!number && value.number() && is_decimal_type && std::abs(*value.number()) < 9e18)
      number = static_cast<int64_t>(*value.number());
    if (!number) run_.fail("the field %{} needs an integer, not a {}", layout.type, value.type_name());
    std::string digits = integer_digits(*number, layout);
    if (layout.precision && digits.size() < static_cast<size_t>(*layout.precision))
      digits.insert(0, static_cast<size_t>(*layout.precision) - digits.size(), '0');
    std::string prefix;
    if (layout.is_alternate && !is_decimal_type) prefix = {'0', layout.type};
    return lay_out_number(run_, *number < 0, prefix, std::move(digits), layout);
  }

  MarkedText float_field(const TemplateValue& value, FieldLayout layout) {
    run_.refuse_undefined(value);
    const auto index = value.as_index();
    if (!index && !value.number()) run_.fail("the field %{} needs a number, not a {}", layout.type, value.type_name());
    const double number = index ? static_cast<double>(*index) : *value.number();
    return lay_out_number(run_, std::signbit(number) && !std::isnan(number), {}, float_digits(run_, number, layout), layout);
  }

  TemplateRun& run_;
  const MarkedText& format_;
  const bool is_markup_;
  const TemplateValue& value_;
  size_t at_ = 0, next_ = 0;
  bool used_mapping_ = false;
  MarkedText out_;
};

}  // namespace

TemplateValue format_percent(TemplateRun& run, const TemplateString& format, const TemplateValue& value) {
  return run.text(PercentFormatter(run, format, value).format(), format.is_markup);
}

}  // namespace zt::data::jinja
