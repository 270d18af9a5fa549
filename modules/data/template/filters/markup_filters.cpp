// Filters for HTML and URLs.
#include <algorithm>
#include <cctype>

#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/library/operators.h"
#include "template/value/compare.h"
#include "template/value/print.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

TemplateValue escape_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "escape", arguments);
  if (value.string() && value.string()->is_markup) return value;
  return run.text(escape_html(text_of(run, value)), true);
}

TemplateValue forceescape_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "forceescape", arguments);
  return run.text(escape_html(text_of(run, value)), true);
}

TemplateValue safe_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "safe", arguments);
  return run.text(text_of(run, value), true);
}

// Removes what stands between `begin` and `end`, again and again. What has no end stays.
MarkedText remove_between(MarkedText text, std::u32string_view begin, std::u32string_view end) {
  const MarkedView first(begin.data(), begin.size()), last(end.data(), end.size());
  MarkedText out;
  size_t at = 0;
  while (true) {
    const size_t from = find_text(text, first, at);
    const size_t to = from == MarkedView::npos ? from : find_text(text, last, from);
    if (to == MarkedView::npos) return out + text.substr(at);
    out.append(text, at, from - at);
    at = to + last.size();
  }
}

// Returns the character of an entity such as "lt" or "#39", or nullopt if it is none. Throws Fault for a name that is not known.
std::optional<char32_t> entity_character(TemplateRun& run, const std::string& name) {
  static constexpr std::pair<std::string_view, char32_t> kEntities[] = {{"amp", '&'},  {"lt", '<'},    {"gt", '>'},
                                                                        {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xA0}};
  for (const auto& [known, character] : kEntities)
    if (name == known) return character;
  if (name.size() < 2 || name[0] != '#') {
    run.fail("'striptags' does not know the entity '&{};': write the character itself", name);
  }
  const bool is_hex = (name[1] | 0x20) == 'x';
  const std::string digits = name.substr(is_hex ? 2 : 1);
  const bool has_digits = !digits.empty() && digits.size() < 8 &&
                          digits.find_first_not_of(is_hex ? "0123456789abcdefABCDEF" : "0123456789") == std::string::npos;
  if (!has_digits) return std::nullopt;
  const auto code = static_cast<char32_t>(std::stoul(digits, nullptr, is_hex ? 16 : 10));
  if (code == 0 || code > 0x10FFFF || (code >= 0x7F && code < 0xA0) || (code >= 0xD800 && code < 0xE000))
    run.fail("'striptags' does not know the entity '&{};': write the character itself", name);
  return code;
}

// A number needs no semicolon after it, as in HTML. A name needs one here.
MarkedText unescape_html(TemplateRun& run, const MarkedText& text) {
  MarkedText out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto at = [&](size_t index) { return index < text.size() ? code_point(text[index]) : 0; };
    const bool is_number = at(i) == '&' && at(i + 1) == '#', is_hex = is_number && (at(i + 2) | 0x20) == 'x';
    const auto is_part = [&](char32_t c) {
      return is_number && !is_hex ? c >= '0' && c <= '9' : c < 0x80 && is_word(c) && c != '_';
    };
    const size_t begin = i + (is_hex ? 3 : is_number ? 2 : 1);
    size_t end = begin;
    while (at(i) == '&' && end < i + 32 && is_part(at(end)) && (!is_hex || std::isxdigit(static_cast<int>(at(end))))) ++end;
    const bool is_entity = end > begin && (is_number || at(end) == ';');
    const auto character = is_entity ? entity_character(run, to_utf8(MarkedView(text).substr(i + 1, end - i - 1))) : std::nullopt;
    out.push_back(character ? *character | marks_of(text[i]) : text[i]);
    if (character) i = at(end) == ';' ? end : end - 1;
  }
  return out;
}

TemplateValue striptags_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "striptags", arguments);
  MarkedText text = remove_between(text_of(run, value), U"<!--", U"-->");
  text = remove_between(std::move(text), U"<", U">");
  MarkedText joined;
  for (const MarkedView word : words_of(text)) {
    if (!joined.empty()) joined.push_back(' ');
    joined += word;
  }
  return run.text(unescape_html(run, joined));
}

MarkedText quote_url(MarkedView text, bool is_query) {
  MarkedText out;
  for (const char32_t character : text) {
    const char32_t c = code_point(character), marks = marks_of(character);
    const bool is_alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_alphanumeric || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !is_query)) {
      out.push_back(character);
    } else if (c == ' ' && is_query) {
      out.push_back('+' | marks);
    } else {
      std::string bytes;
      append_utf8(c, bytes);
      for (const char byte : bytes) append_ascii(fmt::format("%{:02X}", static_cast<unsigned char>(byte)), marks, out);
    }
  }
  return out;
}

TemplateValue urlencode_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "urlencode", arguments);
  if (value.string() || !iterate(run, value)) return run.text(quote_url(text_of(run, value), false));
  std::vector<std::pair<TemplateValue, TemplateValue>> pairs;
  if (value.dict()) {
    pairs = value.dict()->entries();
  } else {
    for (const TemplateValue& item : items_of(run, value)) {
      const auto pair = items_of(run, item);
      if (pair.size() != 2) run.fail("'urlencode' needs pairs, but an item has {} items", pair.size());
      pairs.emplace_back(pair[0], pair[1]);
    }
  }
  MarkedText out;
  for (const auto& [key, item] : pairs) {
    if (!out.empty()) out.push_back('&');
    out += quote_url(text_of(run, key), true) + MarkedText(1, '=') + quote_url(text_of(run, item), true);
    run.check_length(out.size());
  }
  return run.text(std::move(out));
}

TemplateValue xmlattr_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "xmlattr", arguments, {"autospace"});
  if (!value.dict()) run.fail("the filter 'xmlattr' needs a dict, not a {}", value.type_name());
  const auto is_forbidden = [](char32_t character) {
    const char32_t c = code_point(character);
    return c == '/' || c == '>' || c == '=' || c == ' ' || (c >= 9 && c <= 13);
  };
  MarkedText out;
  for (const auto& [key, item] : value.dict()->entries()) {
    if (item.is_none() || item.is_undefined()) continue;
    const MarkedText name = key.text() ? *key.text() : MarkedText(1, ' ');
    if (std::any_of(name.begin(), name.end(), is_forbidden)) run.fail("'xmlattr' has a key that is no name of an attribute");
    if (!out.empty()) out.push_back(' ');
    out += escape_html(name) + from_ascii("=\"") + escape_html(text_of(run, item)) + MarkedText(1, '"');
    run.check_length(out.size());
  }
  if (bound.truth(0, true) && !out.empty()) out.insert(out.begin(), ' ');
  return run.text(std::move(out));
}

}  // namespace

void add_markup_filters(FilterTable& table) {
  table.insert({{"e", escape_filter},
                {"escape", escape_filter},
                {"forceescape", forceescape_filter},
                {"safe", safe_filter},
                {"striptags", striptags_filter},
                {"urlencode", urlencode_filter},
                {"xmlattr", xmlattr_filter}});
}

}  // namespace zt::data::jinja
