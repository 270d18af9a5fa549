// Parses the statements of templates.
#include <algorithm>

#include "template/syntax/body_rules.h"
#include "template/syntax/expression_parser.h"

namespace zt::data::jinja {

namespace {

// Statements of jinja2 that are left out, and the reason.
constexpr std::pair<std::string_view, std::string_view> kUnsupportedStatements[] = {
    {"include", "a chat template is one text: write the other template into it"},
    {"import", "a chat template is one text: write the macros into it"},
    {"from", "a chat template is one text: write the macros into it"},
    {"extends", "a chat template is one text: write the other template into it"},
    {"block", "a chat template has no parent: remove the tags of the block"},
    {"autoescape", "a chat template is no HTML: use the filter `escape`"},
    {"do", "values do not change: use `set` instead"},
};

using EndTags = std::initializer_list<std::string_view>;
constexpr auto kWithAttributes = OperandParser::Attributes::allowed;
constexpr auto kWithoutAttributes = OperandParser::Attributes::refused;

[[noreturn]] void refuse_statement(const TokenStream& tokens, int line, const std::string& name) {
  for (const auto& [unsupported, reason] : kUnsupportedStatements)
    if (name == unsupported) tokens.fail_at(line, "the statement '{}' is not supported, because {}", name, reason);
  tokens.fail_at(line,
                 "unknown statement '{}': known are if, for, set, macro, call, filter, with, print, raw, generation, break, "
                 "continue, and their ends where they close one",
                 name);
}

// Notes which special names the body of a macro reads.
void set_special_names(const TokenStream& tokens, MacroDefinition& macro, const SpecialNames& names, int line) {
  const auto& parameters = macro.parameters;
  const auto caller = std::find(parameters.begin(), parameters.end(), "caller");
  const bool has_default = parameters.end() - caller <= static_cast<std::ptrdiff_t>(macro.defaults.size());
  if (names.caller && caller != parameters.end() && !has_default)
    tokens.fail_at(line, "the parameter 'caller' needs a default, because a call block sets it: write caller=none");
  const auto is_parameter = [&](std::string_view name) {
    return std::find(parameters.begin(), parameters.end(), name) != parameters.end();
  };
  macro.uses_caller = names.caller;
  macro.uses_varargs = names.varargs && !is_parameter("varargs");
  macro.uses_kwargs = names.kwargs && !is_parameter("kwargs");
}

class StatementParser {
 public:
  StatementParser(std::string_view source, const std::string& name) : tokens_(source, name), expressions_(tokens_, notes_) {}

  ScopedBody run() {
    ScopedBody body{parse_statements({}, 1), notes_.frames().current().unset()};
    notes_.check_unknown(tokens_);
    notes_.frames().resolve();
    return body;
  }

 private:
  // Parses up to one of the tags `ends`, whose name is then the current token; without `ends` up to the end of the template.
  // `line` is that of the opening tag.
  Statements parse_statements(EndTags ends, int line) {
    const TokenStream::Nesting nesting(tokens_);
    Statements statements;
    const auto add = [&](int of_line, Statement::Node node) {
      statements.push_back(std::make_unique<const Statement>(Statement{std::move(node), of_line}));
    };
    while (tokens_.kind() != TokenKind::end) {
      const TemplateToken& token = tokens_.take();
      if (token.kind == TokenKind::data) {
        add(token.line, DataStatement{token.text});
      } else if (token.kind == TokenKind::output_begin) {
        OutputStatement output;
        output.values.push_back(expressions_.parse_tuple());
        add(token.line, std::move(output));
        tokens_.expect(TokenKind::output_end);
      } else {
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return tokens_.is_name(end); })) return statements;
        add(token.line, parse_statement());
        tokens_.expect(TokenKind::block_end);
      }
    }
    if (ends.size() > 0)
      tokens_.fail_at(line, "the statement has no end: close it by {{% {} %}}", std::data(ends)[ends.size() - 1]);
    return statements;
  }

  // Parses the end of the opening tag, and the statements up to one of `ends`.
  Statements parse_body(EndTags ends) {
    const int line = tokens_.line();
    tokens_.skip_symbol(":");
    tokens_.expect(TokenKind::block_end);
    return parse_statements(ends, line);
  }
  Statements parse_last_body(std::string_view end) {
    Statements body = parse_body({end});
    tokens_.skip();
    return body;
  }

  // The same in a scope of its own.
  ScopedBody parse_scope(NameFrames::Frame& frame, EndTags ends) {
    notes_.frames().enter(frame);
    ScopedBody body{parse_body(ends), frame.unset()};
    notes_.frames().leave();
    return body;
  }
  ScopedBody parse_last_scope(NameFrames::Frame& frame, std::string_view end) {
    ScopedBody body = parse_scope(frame, {end});
    tokens_.skip();
    return body;
  }
  NameFrames::Frame& add_frame() { return notes_.frames().add_inner(); }

  Statement::Node parse_statement() {
    const int line = tokens_.line();
    const std::string name = tokens_.expect_any_name();
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block(line);
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "print") return parse_print();
    if (name == "generation") return GenerationStatement{parse_macro_body(MacroDefinition(), add_frame(), "endgeneration", line)};
    if (name == "break" || name == "continue") {
      if (!in_loop_) tokens_.fail_at(line, "'{}' is outside of a for loop: move it into one", name);
      if (name == "break") return BreakStatement();
      return ContinueStatement();
    }
    refuse_statement(tokens_, line, name);
  }

  IfStatement parse_if() {
    const BodyRules rules(notes_, in_loop_, true, in_loop_);
    IfStatement statement;
    while (true) {
      ExpressionPtr condition = expressions_.parse_tuple(ExpressionParser::Conditionals::refused);
      notes_.frames().enter_branch();
      statement.branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
      const std::string end = tokens_.take().name;
      if (end == "else") statement.otherwise = parse_last_body("endif");
      notes_.frames().leave_branch();
      if (end != "elif") return statement;
    }
  }

  ForStatement parse_for() {
    ForStatement statement{};
    notes_.begin_loop();
    statement.target = expressions_.parse_target(kWithoutAttributes, "in");
    tokens_.expect_name("in");
    statement.iterable = expressions_.parse_tuple(ExpressionParser::Conditionals::refused, "recursive");
    {
      const BodyRules rules(notes_, in_loop_, false, true);
      notes_.frames().enter(add_frame());
      if (tokens_.skip_name("if")) statement.condition = expressions_.parse();
      notes_.frames().leave();
      statement.is_recursive = tokens_.skip_name("recursive");
      NameFrames::Frame& frame = add_frame();
      notes_.frames().enter(frame);
      notes_.note_parameters(*statement.target);
      notes_.note_parameter("loop");
      notes_.frames().leave();
      statement.body = parse_scope(frame, {"else", "endfor"});
    }
    if (tokens_.take().name == "else") {
      const BodyRules rules(notes_, in_loop_, false, in_loop_);
      statement.otherwise = parse_last_scope(add_frame(), "endfor");
    }
    notes_.end_loop();
    return statement;
  }

  Statement::Node parse_set() {
    ExpressionPtr target = expressions_.parse_target(kWithAttributes);
    if (tokens_.skip_symbol("=")) {
      ExpressionPtr value = expressions_.parse_tuple();
      notes_.note_assignment(*target);
      return SetStatement{std::move(target), std::move(value)};
    }
    notes_.note_assignment(*target);
    const BodyRules rules(notes_, in_loop_, false, in_loop_);
    NameFrames::Frame& frame = add_frame();
    notes_.frames().enter(frame);
    ExpressionPtr filter = tokens_.skip_symbol("|") ? expressions_.parse_block_filters() : nullptr;
    notes_.frames().leave();
    return SetBlockStatement{std::move(target), std::move(filter), parse_last_scope(frame, "endset")};
  }

  // Parses the parameters of a macro or call block.
  void parse_signature(MacroDefinition& macro, NameFrames::Frame& frame) {
    const BodyRules rules(notes_, in_loop_, false, in_loop_);
    notes_.frames().enter(frame);
    tokens_.expect_symbol("(");
    while (!tokens_.is_symbol(")")) {
      if (!macro.parameters.empty()) tokens_.expect_symbol(",");
      std::string name = tokens_.expect_any_name();
      if (std::count(macro.parameters.begin(), macro.parameters.end(), name) > 0)
        tokens_.fail("the parameter '{}' occurs twice: give each another name", name);
      notes_.note_parameter(name);
      if (tokens_.skip_symbol("=")) macro.defaults.push_back(expressions_.parse());
      else if (!macro.defaults.empty())
        tokens_.fail("the parameter '{}' needs a default, because the one before it has one", name);
      macro.parameters.push_back(std::move(name));
    }
    tokens_.expect_symbol(")");
    notes_.frames().leave();
  }

  MacroDefinition parse_macro_body(MacroDefinition macro, NameFrames::Frame& frame, std::string_view end, int line) {
    const BodyRules rules(notes_, in_loop_, false, false);
    notes_.begin_body();
    macro.body = parse_last_scope(frame, end);
    set_special_names(tokens_, macro, notes_.end_body(), line);
    return macro;
  }

  MacroStatement parse_macro() {
    const int line = tokens_.line();
    MacroDefinition macro;
    macro.name = tokens_.expect_any_name();
    for (const std::string_view name : {"true", "false", "none", "True", "False", "None"})
      if (macro.name == name) tokens_.fail_at(line, "'{}' is a constant: give the macro another name", name);
    notes_.note_assignment(macro.name);
    NameFrames::Frame& frame = add_frame();
    parse_signature(macro, frame);
    return MacroStatement{parse_macro_body(std::move(macro), frame, "endmacro", line)};
  }

  CallStatement parse_call_block(int line) {
    MacroDefinition caller;
    NameFrames::Frame& frame = add_frame();
    if (tokens_.is_symbol("(")) parse_signature(caller, frame);
    ExpressionPtr call = expressions_.parse();
    if (!std::holds_alternative<CallExpr>(call->node))
      tokens_.fail_at(line, "a call block needs the call of a macro: write {{% call name(...) %}}");
    for (const auto& [name, value] : std::get<CallExpr>(call->node).arguments.named)
      if (name == "caller") tokens_.fail_at(line, "the argument 'caller' occurs twice, because a call block sets it: remove it");
    return CallStatement{parse_macro_body(std::move(caller), frame, "endcall", line), std::move(call)};
  }

  FilterStatement parse_filter_block() {
    const BodyRules rules(notes_, in_loop_, false, in_loop_);
    ExpressionPtr filter = expressions_.parse_block_filters();
    return FilterStatement{std::move(filter), parse_last_scope(add_frame(), "endfilter")};
  }

  WithStatement parse_with() {
    WithStatement statement;
    while (tokens_.kind() != TokenKind::block_end && tokens_.kind() != TokenKind::end) {
      if (!statement.assignments.empty()) tokens_.expect_symbol(",");
      ExpressionPtr target = expressions_.parse_target(kWithoutAttributes);
      tokens_.expect_symbol("=");
      statement.assignments.emplace_back(std::move(target), expressions_.parse());
    }
    const BodyRules rules(notes_, in_loop_, false, in_loop_);
    NameFrames::Frame& frame = add_frame();
    notes_.frames().enter(frame);
    for (const auto& [target, value] : statement.assignments) notes_.note_parameters(*target);
    notes_.frames().leave();
    statement.body = parse_last_scope(frame, "endwith");
    return statement;
  }

  OutputStatement parse_print() {
    OutputStatement statement;
    while (tokens_.kind() != TokenKind::block_end && tokens_.kind() != TokenKind::end) {
      if (!statement.values.empty()) tokens_.expect_symbol(",");
      statement.values.push_back(expressions_.parse());
    }
    return statement;
  }

  TokenStream tokens_;
  NameNotes notes_;
  ExpressionParser expressions_;
  bool in_loop_ = false;
};

}  // namespace

ScopedBody parse_template(std::string_view source, const std::string& name) {
  return StatementParser(source, name).run();
}

}  // namespace zt::data::jinja
