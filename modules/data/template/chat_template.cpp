#include "template/chat_template.h"

#include "template/evaluator.h"
#include "template/input.h"
#include "template/syntax/syntax.h"

namespace zt::data {

namespace {

// The ranges of the bytes whose character has a mark. The text is appended to `text` at the same time.
class MarkedRanges {
 public:
  explicit MarkedRanges(char32_t mark) : mark_(mark) {}
  void add(char32_t character, size_t begin, size_t end) {
    if ((character & mark_) == 0) return;
    if (!ranges_.empty() && ranges_.back().end == begin) ranges_.back().end = end;
    else ranges_.push_back({begin, end});
  }
  std::vector<TextRange> take() { return std::move(ranges_); }

 private:
  const char32_t mark_;
  std::vector<TextRange> ranges_;
};

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(std::string_view source, const std::string& name, std::function<std::time_t()> clock)
      : source_(source), name_(name), clock_(std::move(clock)), body_(jinja::parse_template(source, name)) {}

  RenderedChat render(const Value& messages, const Value& variables, bool add_generation_prompt) const override {
    jinja::TemplateRun run(name_, clock_);
    jinja::TemplateScope inputs(nullptr);
    set_variables(run, inputs, variables);
    inputs.set("messages", jinja::template_messages(run, messages));
    inputs.set("add_generation_prompt", add_generation_prompt);
    jinja::Evaluator evaluator(run);
    return to_chat(evaluator.render(body_, inputs));
  }

  const std::string& source() const override { return source_; }

 private:
  static void set_variables(jinja::TemplateRun& run, jinja::TemplateScope& scope, const Value& variables) {
    for (const char* name : {"tools", "documents"}) scope.set(name, jinja::TemplateValue());
    if (variables.is_nil()) return;
    if (const auto* list = variables.get_if<Value::List>(); list && list->empty()) return;
    const auto* table = variables.get_if<Value::Table>();
    if (!table) misuse("the variables of a chat template are {}: give a table", variables.type_name());
    for (const auto& [name, value] : *table) {
      if (name == "messages" || name == "add_generation_prompt")
        misuse("the variables of a chat template contain '{}', which has an argument of its own: remove it", name);
      const bool is_token = name.ends_with("_token");
      scope.set(name, jinja::template_value(run, value, name, is_token ? 0 : jinja::kFromInput));
    }
  }

  RenderedChat to_chat(const jinja::MarkedText& text) const {
    RenderedChat chat;
    MarkedRanges contents(jinja::kFromInput), answers(jinja::kInAnswer);
    for (const char32_t character : text) {
      const char32_t code = jinja::code_point(character);
      if (code >= 0xD800 && code < 0xE000)
        fault("'{}' writes half of a surrogate pair, which UTF-8 cannot hold: write the character itself", name_);
      const size_t begin = chat.text.size();
      jinja::append_utf8(character, chat.text);
      contents.add(character, begin, chat.text.size());
      answers.add(character, begin, chat.text.size());
    }
    if (chat.text.size() > jinja::kMaxLength)
      fault("the output of '{}' is longer than {} bytes, the limit: make the messages shorter", name_, jinja::kMaxLength);
    chat.contents = contents.take();
    chat.answers = answers.take();
    return chat;
  }

  const std::string source_, name_;
  const std::function<std::time_t()> clock_;
  const jinja::ScopedBody body_;
};

}  // namespace

std::shared_ptr<ChatTemplate> parse_chat_template(std::string_view source, const std::string& name) {
  return parse_chat_template(source, name, [] { return std::time(nullptr); });
}

std::shared_ptr<ChatTemplate> parse_chat_template(std::string_view source, const std::string& name,
                                                  std::function<std::time_t()> clock) {
  return std::make_shared<JinjaTemplate>(source, name, std::move(clock));
}

}  // namespace zt::data
