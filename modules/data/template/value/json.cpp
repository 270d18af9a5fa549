// json_text: values as JSON, as Python's json.dumps writes it.
#include <algorithm>
#include <cmath>

#include "template/value/compare.h"
#include "template/value/print.h"

namespace zt::data::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(TemplateRun& run, const JsonStyle& style) : run_(run), style_(style) {}

  void write(const TemplateValue& value, int depth) {
    run_.charge(1);
    run_.check_length(out_.size());
    const auto level = run_.enter_call();
    if (const MarkedText* text = value.text()) write_string(*text);
    else if (const TemplateList* list = value.list()) write_list(*list, depth);
    else if (const TemplateDict* dict = value.dict()) write_dict(*dict, depth);
    else write_scalar(value);
  }
  MarkedText take() { return std::move(out_); }

 private:
  void write_ascii(std::string_view text) { append_ascii(text, 0, out_); }

  void write_scalar(const TemplateValue& value) {
    const auto text = scalar_text(value);
    if (!text)
      run_.fail("a value of type {} cannot be written as JSON: give strings, numbers, lists and dicts to `tojson`",
                value.type_name());
    write_ascii(*text);
  }

  static std::optional<std::string> scalar_text(const TemplateValue& value) {
    if (value.is_none()) return "null";
    if (const bool* boolean = value.boolean()) return *boolean ? "true" : "false";
    if (const int64_t* integer = value.integer()) return std::to_string(*integer);
    const double* number = value.number();
    if (!number) return std::nullopt;
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number < 0 ? "-Infinity" : "Infinity";
    return float_text(*number);
  }

  void write_string(const MarkedText& text) {
    run_.charge_text(text.size());
    out_.push_back('"');
    for (const char32_t character : text) write_character(character);
    out_.push_back('"');
  }

  void write_character(char32_t character) {
    const char32_t c = code_point(character), marks = marks_of(character);
    constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const size_t at = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out_.push_back('\\' | marks);
      out_.push_back(static_cast<char32_t>(kLetters[at]) | marks);
    } else if (c < 0x20 || (style_.is_ascii && c >= 0x7F && c < 0x10000)) {
      write_escape(c, marks);
    } else if (style_.is_ascii && c >= 0x10000) {
      write_escape(0xD800 + ((c - 0x10000) >> 10), marks);
      write_escape(0xDC00 + ((c - 0x10000) & 0x3FF), marks);
    } else {
      out_.push_back(character);
    }
  }

  void write_escape(char32_t unit, char32_t marks) {
    append_ascii(fmt::format("\\u{:04x}", static_cast<uint32_t>(unit)), marks, out_);
  }

  void begin_line(int depth) {
    if (!style_.indent) return;
    run_.check_length(out_.size());
    out_.push_back('\n');
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  void write_list(const TemplateList& list, int depth) {
    out_.push_back('[');
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      begin_line(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) begin_line(depth);
    out_.push_back(']');
  }

  void write_dict(const TemplateDict& dict, int depth) {
    auto entries = dict.entries();
    run_.charge(entries.size());
    if (style_.is_sorted)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto& left, const auto& right) { return compare(run_, Order::less, left.first, right.first); });
    out_.push_back('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      begin_line(depth + 1);
      write_key(entries[i].first);
      out_ += style_.key_separator;
      write(entries[i].second, depth + 1);
    }
    if (!entries.empty()) begin_line(depth);
    out_.push_back('}');
  }

  void write_key(const TemplateValue& key) {
    if (const MarkedText* text = key.text()) return write_string(*text);
    const auto text = scalar_text(key);
    if (!text) run_.fail("a {} cannot be a key in JSON: give strings or numbers as keys to `tojson`", key.type_name());
    write_string(from_ascii(*text));
  }

  TemplateRun& run_;
  const JsonStyle& style_;
  MarkedText out_;
};

}  // namespace

MarkedText json_text(TemplateRun& run, const TemplateValue& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value, 0);
  MarkedText text = writer.take();
  run.check_length(text.size());
  const char32_t marks = all_marks(text) & kFromInput;
  return with_marks(std::move(text), marks);
}

}  // namespace zt::data::jinja
