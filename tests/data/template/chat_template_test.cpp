#include "template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "support/message.h"
#include "zt/base/error.h"
#include "zt/base/value.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

const Value kNoVariables = Value::Table{};

Value chat_message(const std::string& role, const Value& content) {
  return Value::Table{{"role", role}, {"content", content}};
}

RenderedChat render_chat(const std::string& source, const Value& messages = Value::List{},
                         const Value& variables = kNoVariables) {
  return parse_chat_template(source, "test")->render(messages, variables, false);
}

// Returns the message of the Fault that the template ends with.
std::string fault_of(const std::string& source) {
  return zt::test::message_of<Fault>([&] { render_chat(source); });
}

// Returns the parts of the text that count as contents, joined by '|'.
std::string contents_of(const RenderedChat& chat) {
  std::string parts;
  for (const TextRange& range : chat.contents)
    parts += (parts.empty() ? "" : "|") + chat.text.substr(range.begin, range.end - range.begin);
  return parts;
}

TEST(ChatTemplate, FindsWhatComesFromTheInput) {
  const Value messages = Value::List{chat_message("user", "Grüße, World")};
  const Value variables = Value::Table{{"bos_token", "<s>"}, {"name", "Eve"}};
  const auto check = [&](const std::string& expression, const std::string& text, const std::string& contents) {
    const auto chat = render_chat("{% set c = messages[0].content %}<{{ " + expression + " }}>", messages, variables);
    EXPECT_EQ(chat.text, "<" + text + ">") << expression;
    EXPECT_EQ(contents_of(chat), contents) << expression;
  };
  check("c", "Grüße, World", "Grüße, World");
  check("'x'", "x", "");
  check("bos_token", "<s>", "");
  check("bos_token ~ name ~ '.'", "<s>Eve.", "Eve");
  check("'user' if messages[0].role == 'user' else 'other'", "user", "");
  check("messages[0]['role'] + ':' + c", "user:Grüße, World", "Grüße, World");
  check("c|upper", "GRÜSSE, WORLD", "GRÜSSE, WORLD");
  check("c[2:5]|replace('ß', '[' ~ bos_token ~ ']')", "ü[<s>]e", "ü|e");
  check("'a-b'|replace('-', name)", "aEveb", "Eve");
  check("c.split(', ')|join(' + ')", "Grüße + World", "Grüße|World");
  check("[name, 1]", "['Eve', 1]", "Eve");
  check("{'a': name}|tojson", "{\"a\": \"Eve\"}", "{\"a\": \"Eve\"}");
  check("{'a': bos_token}|tojson", "{\"a\": \"<s>\"}", "");
  check("'%s, %5s!' % ('x', name)", "x,   Eve!", "Eve");
  check("'{:*^7}'.format(name)", "**Eve**", "Eve");
  check("name|center(7)", "  Eve  ", "Eve");
  check("('<b>' ~ name ~ '&')|escape", "&lt;b&gt;Eve&amp;", "Eve");
  check("name|indent(2, true)", "  Eve", "Eve");
  check("(name ~ 'xyz')|title|reverse", "zyxevE", "evE");
  check("messages[0]|items|map('first')|join(',')", "content,role", "content|role");
}

TEST(ChatTemplate, FindsAnswersInCapturedText) {
  const auto chat = render_chat("{% set x %}a{% generation %}bc{% endgeneration %}d{% endset %}{{ x|upper }}-{{ x }}");
  EXPECT_EQ(chat.text, "ABCD-abcd");
  EXPECT_EQ(chat.answers, (std::vector<TextRange>{{1, 3}, {6, 8}}));
}

TEST(ChatTemplate, NamesTheTemplateAndTheLine) {
  EXPECT_THAT(fault_of("a\n{{ 1 | upperr }}"), HasSubstr("'test' line 2: unknown filter 'upperr': did you mean 'upper'?"));
  EXPECT_THAT(fault_of("{{ x.y }}"), HasSubstr("'test' line 1: 'x' is undefined"));
  EXPECT_THAT(fault_of("\n\n{% include 'x' %}"), HasSubstr("'test' line 3: the statement 'include' is not supported"));
  EXPECT_THAT(fault_of("{{ [1].append(2) }}"), HasSubstr("its sandbox is immutable"));
  EXPECT_THAT(fault_of("{{ raise_exception('only ' ~ 1 ~ ' turn') }}"),
              HasSubstr("'test' line 1: the template refuses the messages: only 1 turn"));
  EXPECT_THAT(fault_of("{% for x in [1] %}\n{{ x }}"), HasSubstr("line 1: the statement has no end: close it by {% endfor %}"));
  EXPECT_THAT(fault_of("{{ 9999999999999999999 }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(fault_of("{{ [1]|map('string') }}"), HasSubstr("`x | list`"));
  EXPECT_THAT(fault_of("{{ '\\N{BULLET}' }}"), HasSubstr("\\N{...}, which is not supported"));
  EXPECT_THAT(fault_of("{{ 1|pprint }}"), HasSubstr("the filter 'pprint' is not supported"));
  EXPECT_THAT(fault_of("{{ '\\ud800' }}"), HasSubstr("half of a surrogate pair"));
}

TEST(ChatTemplate, EndsAtEveryLimit) {
  const std::string deep = std::string(100, '(') + "1" + std::string(100, ')'), chain = [] {
    std::string text = "1";
    for (int i = 0; i < 5000; ++i) text += " + 1";
    return text;
  }();
  EXPECT_THAT(fault_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
              HasSubstr("1000000 steps"));
  EXPECT_THAT(fault_of("{% for a in range(99999) %}{{ 'twenty characters...' }}{% endfor %}"),
              HasSubstr("the output is longer than"));
  EXPECT_THAT(fault_of("{{ 'a' * 1000000000 }}"), HasSubstr("more than 1048576 elements"));
  EXPECT_THAT(fault_of("{{ ([1] * 1000000)|length * [1] * 2 }}"), HasSubstr("more than 1048576 elements"));
  EXPECT_THAT(fault_of("{{ '%999999999d' % 1 }}"), HasSubstr("more than 1048576 elements"));
  EXPECT_THAT(fault_of("{{ range(1000000000000) }}"), HasSubstr("'range' has more than 100000 items"));
  EXPECT_THAT(fault_of("{{ 2 ** 1000000000 }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(fault_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(fault_of("{{ (-9223372036854775807 - 1) // -1 }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(fault_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("the nesting of calls is deeper than 64"));
  EXPECT_THAT(fault_of("{{ " + deep + " }}"), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(fault_of("{{ " + chain + " }}"), HasSubstr("more than 200 operators in a chain"));
  EXPECT_THAT(fault_of("{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}"),
              HasSubstr("nested deeper than 64"));
  EXPECT_THAT(
      fault_of("{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x|map('int') %}{% endfor %}{{ n.x|list }}"),
      HasSubstr("deeper than 64"));
  EXPECT_THAT(fault_of("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), HasSubstr("deeper than 64"));
}

// Each value has the previous one twice, so the last one would have 2^60 items.
TEST(ChatTemplate, EndsForValuesThatShareParts) {
  const std::string shared =
      "{% set n = namespace(x=[1], y=[1]) %}"
      "{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}";
  EXPECT_THAT(fault_of(shared + "{{ n.x == n.y }}"), HasSubstr("steps"));
  EXPECT_THAT(fault_of(shared + "{{ n.x }}"), HasSubstr("limit"));
  EXPECT_THAT(fault_of(shared + "{{ n.x|tojson }}"), HasSubstr("limit"));
}

// Work on long strings counts as steps, also if its result is short.
TEST(ChatTemplate, EndsForLongStrings) {
  const std::string start = "{% set x = ' ' * 1000000 %}{% set y = 'ab' * 500000 %}{% for i in range(99999) %}",
                    end = "{% endfor %}";
  for (const char* body :
       {"{% set z = x|trim %}", "{% set z = x.strip() %}", "{% set z = y is lower %}", "{% set z = x.isspace() %}",
        "{% set z = 'abc' in x %}", "{% set z = y.count('abb') %}", "{% set z = 'a'[y] %}"})
    EXPECT_THAT(fault_of(start + body + end), HasSubstr("steps")) << body;
}

TEST(ChatTemplate, RefusesOtherInput) {
  const auto parsed = parse_chat_template("{{ messages }}", "test");
  const auto misuse_of = [&](const Value& messages, const Value& variables) {
    return zt::test::message_of<Misuse>([&] { parsed->render(messages, variables, false); });
  };
  EXPECT_THAT(misuse_of("text", kNoVariables), HasSubstr("the messages of a chat are a string"));
  EXPECT_THAT(misuse_of(Value::List{"text"}, kNoVariables), HasSubstr("messages[1] is a string"));
  EXPECT_THAT(misuse_of(Value::List{chat_message("user", "\xff")}, kNoVariables), HasSubstr("messages[1].content is not UTF-8"));
  EXPECT_THAT(misuse_of(Value::List{}, "x"), HasSubstr("the variables of a chat template are a string"));
  EXPECT_THAT(misuse_of(Value::List{}, Value::Table{{"messages", 1}}), HasSubstr("contain 'messages'"));
  Value deep = 1;
  for (int i = 0; i < 100; ++i) deep = Value::List{deep};
  EXPECT_THAT(misuse_of(Value::List{chat_message("user", deep)}, kNoVariables), HasSubstr("nested deeper than 64"));
}

TEST(ChatTemplate, KnowsTheReasoningByAllItsNames) {
  const std::string source = "{% for m in messages %}{{ m.reasoning_content }},{{ m.thinking }};{% endfor %}";
  Value::List messages;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"})
    messages.push_back(Value::Table{{"role", "assistant"}, {"content", "x"}, {name, "why"}});
  EXPECT_EQ(render_chat(source, messages).text, "why,why;why,why;why,why;");
}

TEST(ChatTemplate, PrintsTheTimeOfItsClock) {
  const auto parsed = parse_chat_template("{{ strftime_now('%Y') }}", "test", [] { return std::time_t{86400 * 200}; });
  EXPECT_EQ(parsed->render(Value::List{}, kNoVariables, false).text, "1970");
  EXPECT_EQ(parsed->source(), "{{ strftime_now('%Y') }}");
}

TEST(ChatTemplate, RendersInSeveralThreads) {
  const auto parsed = parse_chat_template(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content|length %}{% endfor %}{{ ns.n }}",
      "test");
  Value::List messages;
  for (int i = 0; i < 50; ++i) messages.push_back(chat_message("user", "text"));
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) text = parsed->render(messages, kNoVariables, false).text;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "200");
}

}  // namespace

}  // namespace zt::data
