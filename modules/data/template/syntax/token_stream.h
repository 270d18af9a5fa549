// The tokens of a template with a position, and what both parsers share.
#pragma once

#include <optional>

#include "template/syntax/lexer.h"
#include "template/value/run.h"

namespace zt::data::jinja {

class TokenStream {
 public:
  TokenStream(std::string_view source, const std::string& name) : name_(name), tokens_(tokenize_template(source, name)) {}

  // Throws Fault. The message begins with the name of the template and a line.
  template <class... Args>
  [[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) const {
    fault("'{}' line {}: {}", name_, line, message(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(line(), format, std::forward<Args>(args)...);
  }

  const TemplateToken& current() const { return tokens_[at_]; }
  const TemplateToken& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  TokenKind kind() const { return current().kind; }
  int line() const { return current().line; }
  void skip() {
    if (kind() != TokenKind::end) ++at_;
  }
  const TemplateToken& take() {
    const TemplateToken& token = current();
    skip();
    return token;
  }

  bool is_symbol(std::string_view symbol) const { return kind() == TokenKind::symbol && current().name == symbol; }
  bool is_name(std::string_view name) const { return kind() == TokenKind::name && current().name == name; }
  bool is_next_symbol(std::string_view symbol) const {
    return next_token().kind == TokenKind::symbol && next_token().name == symbol;
  }
  bool skip_symbol(std::string_view symbol) { return is_symbol(symbol) && (skip(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (skip(), true); }
  // Throw Fault if the current token is another one.
  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail("found {} where '{}' has to be: add it", describe(), symbol);
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail("found {} where '{}' has to be: add it", describe(), name);
  }
  void expect(TokenKind kind) {
    if (this->kind() != kind)
      fail("found {} where the tag has to end: close the tag, or remove what does not belong to it", describe());
    skip();
  }
  std::string expect_any_name() {
    if (kind() != TokenKind::name) fail("found {} where a name has to be: write a name", describe());
    return take().name;
  }

  // Returns the current token for messages: "the name 'x'".
  std::string describe() const;

  // A level of nesting while it lives. Throws Fault at the constructor if there are too many.
  class Nesting {
   public:
    explicit Nesting(TokenStream& stream) : stream_(stream) {
      if (stream.nesting_ >= kMaxDepth)
        stream.fail("the template is nested deeper than {}, the limit: use variables or macros to make it flatter", kMaxDepth);
      ++stream_.nesting_;
    }
    ~Nesting() { --stream_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  const std::string& name_;
  const std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace zt::data::jinja
