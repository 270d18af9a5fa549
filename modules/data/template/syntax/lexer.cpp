#include "template/syntax/lexer.h"

#include <algorithm>

#include "template/syntax/literal.h"
#include "template/value/unicode.h"
#include "zt/base/error.h"

namespace zt::data::jinja {

namespace {

// Replaces \r\n and \r by \n and drops one line end at the end of the source.
MarkedText normalize_newlines(const MarkedText& source) {
  MarkedText out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out.push_back('\n');
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class TemplateLexer {
 public:
  TemplateLexer(MarkedText source, const std::string& name) : source_(std::move(source)), name_(name) {}

  std::vector<TemplateToken> run() {
    while (at_ < source_.size()) read_data();
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fault("'{}' line {}: {}", name_, line_, message(format, std::forward<Args>(args)...));
  }

  MarkedView rest(size_t at) const { return MarkedView(source_).substr(std::min(at, source_.size())); }
  bool starts_with(size_t at, std::u32string_view text) const {
    return rest(at).starts_with(MarkedView(text.data(), text.size()));
  }
  char32_t character(size_t at) const { return at < source_.size() ? source_[at] : 0; }
  TemplateToken& add(TokenKind kind) { return tokens_.emplace_back(TemplateToken{kind, line_, {}, {}, 0, 0}); }

  // Moves to `end` and counts the lines.
  void advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), U'\n'));
    at_ = end;
  }
  size_t skip_space(size_t at) const {
    while (at < source_.size() && is_space(source_[at])) ++at;
    return at;
  }

  void add_data(MarkedView text) {
    if (!text.empty()) add(TokenKind::data).text = text;
  }

  // Returns the text before a tag without the white space that the tag strips. `sign` follows the opening of the tag.
  MarkedView stripped(MarkedView text, char32_t sign, bool is_output) const {
    if (sign == '-') return strip(text, StripSide::right);
    if (sign == '+' || is_output) return text;
    const size_t newline = text.rfind(U'\n');
    const size_t begin = newline == MarkedView::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starts_) return text;
    const MarkedView last = text.substr(begin);
    return strip(last, StripSide::right).empty() ? text.substr(0, begin) : text;
  }

  // Reads the text up to the next tag, and the tag.
  void read_data() {
    size_t tag = at_;
    while (tag < source_.size() &&
           !(source_[tag] == '{' && (character(tag + 1) == '{' || character(tag + 1) == '%' || character(tag + 1) == '#')))
      ++tag;
    const MarkedView text = rest(at_).substr(0, tag - at_);
    if (tag == source_.size()) {
      add_data(text);
      return advance(tag);
    }
    const char32_t kind = character(tag + 1), sign = character(tag + 2);
    add_data(stripped(text, sign, kind == '{'));
    advance(tag);
    const size_t inner = tag + (sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return read_comment(inner);
    if (kind == '%' && read_raw(inner)) return;
    add(kind == '{' ? TokenKind::output_begin : TokenKind::block_begin);
    advance(inner);
    read_tag(kind == '{');
  }

  // Returns the offset after the end of a block or comment at `at`, or npos if it does not end there. `close` is "%}" or "#}".
  size_t end_of_tag(size_t at, std::u32string_view close) const {
    if (character(at) == '+' && starts_with(at + 1, close)) return at + 3;
    if (character(at) == '-' && starts_with(at + 1, close)) return skip_space(at + 3);
    if (!starts_with(at, close)) return MarkedView::npos;
    return at + (character(at + 2) == '\n' ? 3 : 2);
  }

  void end_tag(size_t end) {
    line_starts_ = end > 0 && source_[end - 1] == '\n';
    advance(end);
  }

  void read_comment(size_t at) {
    if (at >= source_.size()) return advance(source_.size());  // jinja2 accepts a tag at the very end
    for (; at < source_.size(); ++at)
      if (const size_t end = end_of_tag(at, U"#}"); end != MarkedView::npos) return end_tag(end);
    fail("the comment has no end: close it by #}}");
  }

  // Reads {% raw %} and what follows up to {% endraw %}. Returns false if the tag is another one. `at` is after "{%" and its
  // sign.
  bool read_raw(size_t at) {
    at = skip_space(at);
    if (!starts_with(at, U"raw")) return false;
    at = skip_space(at + 3);
    if (starts_with(at, U"-%}")) at = skip_space(at + 3);
    else if (starts_with(at, U"%}")) at += 2;
    else return false;
    line_starts_ = source_[at - 1] == '\n';
    advance(at);
    if (at == source_.size()) return true;  // jinja2 accepts it
    for (size_t tag = at; (tag = source_.find(U"{%", tag)) != MarkedText::npos; ++tag) {
      const char32_t sign = character(tag + 2);
      // A sign is optional, so that "{%-endraw" and "{% endraw" both match.
      const size_t word = skip_space(tag + (sign == '-' || sign == '+' ? 3 : 2));
      if (!starts_with(word, U"endraw")) continue;
      const size_t end = end_of_tag(skip_space(word + 6), U"%}");
      if (end == MarkedView::npos) continue;
      add_data(stripped(rest(at).substr(0, tag - at), sign, false));
      end_tag(end);
      return true;
    }
    fail("the block 'raw' has no end: close it by {{% endraw %}}");
  }

  // Reads the tokens of a tag up to its end.
  void read_tag(bool is_output) {
    std::string open;  // the closing brackets that are still to come
    while (at_ < source_.size()) {
      if (open.empty() && read_end(is_output)) return;
      if (is_space(source_[at_])) advance(skip_space(at_));
      else if (!read_number() && !read_name() && !read_string()) read_symbol(open);
    }
    fail("the template ends inside of a tag: close it by {}", is_output ? "}}" : "%}");
  }

  bool read_end(bool is_output) {
    size_t end = MarkedView::npos;
    if (!is_output) end = end_of_tag(at_, U"%}");
    else if (starts_with(at_, U"-}}")) end = skip_space(at_ + 3);
    else if (starts_with(at_, U"}}")) end = at_ + 2;
    if (end == MarkedView::npos) return false;
    add(is_output ? TokenKind::output_end : TokenKind::block_end);
    end_tag(end);
    return true;
  }

  bool read_number() {
    if (const size_t length = float_length(source_, at_)) {
      add(TokenKind::number).number = float_value(rest(at_).substr(0, length));
      at_ += length;
      return true;
    }
    const size_t length = integer_length(source_, at_);
    if (length == 0) return false;
    const auto value = integer_value(rest(at_).substr(0, length));
    if (!value) fail("the integer {} does not fit into 64 bits: write a smaller one", to_utf8(rest(at_).substr(0, length)));
    add(TokenKind::integer).integer = *value;
    at_ += length;
    return true;
  }

  bool read_name() {
    size_t end = at_;
    while (end < source_.size() && is_word(source_[end])) ++end;
    if (end == at_) return false;
    const std::string name = to_utf8(rest(at_).substr(0, end - at_));
    if (!is_letter(source_[at_]) && source_[at_] != '_') fail("'{}' is no name: begin a name with a letter", name);
    add(TokenKind::name).name = name;
    at_ = end;
    return true;
  }

  bool read_string() {
    const char32_t quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string has no end: close it by the quote with which it begins");
    auto text = unescape(rest(at_ + 1).substr(0, end - at_ - 1));
    if (!text)
      fail("an escape in a string is not complete, or is \\N{{...}}, which is not supported: write the character itself");
    add(TokenKind::string).text = std::move(*text);
    advance(end + 1);
    return true;
  }

  void read_symbol(std::string& open) {
    static constexpr std::u32string_view kSymbols[] = {U"**", U"//", U"==", U"!=", U">=", U"<=", U"+", U"-", U"/",
                                                       U"*",  U"%",  U"~",  U"[",  U"]",  U"(",  U")", U"{", U"}",
                                                       U">",  U"<",  U"=",  U".",  U":",  U"|",  U",", U";"};
    const auto* symbol = std::find_if(std::begin(kSymbols), std::end(kSymbols),
                                      [&](std::u32string_view candidate) { return starts_with(at_, candidate); });
    if (symbol == std::end(kSymbols))
      fail("the character '{}' means nothing in an expression: remove it", to_utf8(rest(at_).substr(0, 1)));
    const std::string text(symbol->begin(), symbol->end());
    if (text == "(" || text == "[" || text == "{") {
      open.push_back(text == "(" ? ')' : text == "[" ? ']' : '}');
    } else if (text == ")" || text == "]" || text == "}") {
      if (open.empty() || open.back() != text.front()) fail("'{}' closes nothing that is open: remove it", text);
      open.pop_back();
    }
    add(TokenKind::symbol).name = text;
    at_ += text.size();
  }

  const MarkedText source_;
  const std::string& name_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the last tag ended a line, or there was none
  std::vector<TemplateToken> tokens_;
};

}  // namespace

std::vector<TemplateToken> tokenize_template(std::string_view source, const std::string& name) {
  const auto text = from_utf8(source, 0);
  if (!text) fault("the template '{}' is not UTF-8: convert its file to UTF-8", name);
  return TemplateLexer(normalize_newlines(*text), name).run();
}

}  // namespace zt::data::jinja
