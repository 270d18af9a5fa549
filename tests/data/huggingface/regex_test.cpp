#include <gmock/gmock.h>

#include "data/support/folder.h"
#include "huggingface/text/oniguruma.h"
#include "huggingface/text/unicode_regex.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns the parts of a text, with matches in brackets.
std::vector<std::string> parts(const std::string& pattern, const std::string& text) {
  std::vector<PatternSpan> spans;
  UnicodeRegex::from_oniguruma(pattern).find_all(text, spans);
  std::vector<std::string> found;
  for (const PatternSpan& span : spans) {
    const std::string part = text.substr(span.begin, span.end - span.begin);
    found.push_back(span.is_match ? "[" + part + "]" : part);
  }
  return found;
}

// The results are those of pre_tokenizers.Split(Regex(pattern), "isolated") in tokenizers 0.23. Brackets are known from Replace.
TEST(UnicodeRegex, MatchesAsOniguruma) {
  EXPECT_THAT(parts(R"(\h+)", "xAf0g"), ElementsAre("x", "[Af0]", "g")) << "\\h is a hexadecimal digit";
  EXPECT_THAT(parts(R"($)", "a\nb\n"), ElementsAre("a", "[]", "\nb", "[]", "\n", "[]"));
  EXPECT_THAT(parts(R"(^)", "a\n\nb\n"), ElementsAre("[]", "a\n", "[]", "\n", "[]", "b\n"));
  EXPECT_THAT(parts(R"(a{1,2}+)", "aaaaa"), ElementsAre("[aaaaa]")) << "a plus repeats an interval";
  EXPECT_THAT(parts(R"(a**)", "aab"), ElementsAre("[aa]", "b", "[]"));
  EXPECT_THAT(parts(R"(a{,2})", "aaa"), ElementsAre("[aa]", "[a]"));
  EXPECT_THAT(parts(R"((?m:a.b))", "a\nb"), ElementsAre("[a\nb]"));
  EXPECT_THAT(parts(R"([a[bc]]+)", "xabcx"), ElementsAre("x", "[abc]", "x"));
  EXPECT_THAT(parts(R"([]a])", "a]"), ElementsAre("[a]", "[]]"));
  EXPECT_THAT(parts(R"(\u0041|\x42|\x{43})", "ABC"), ElementsAre("[A]", "[B]", "[C]"));
  EXPECT_THAT(parts(R"(a(?i)b|c)", "aBCaC"), ElementsAre("[aB]", "C", "[aC]")) << "options hold for later alternatives, too";
  EXPECT_THAT(parts(R"(\p{^L}+|\p{Letter})", "1-a"), ElementsAre("[1-]", "[a]"));
  EXPECT_THAT(parts(R"([[:^alpha:]])", "a1"), ElementsAre("a", "[1]"));
  EXPECT_THAT(parts(R"((?i:'s))", "x'\xC5\xBF"), ElementsAre("x", "['\xC5\xBF]")) << "the long s is an s";
  EXPECT_THAT(parts(R"(a{x|{)", "a{x{"), ElementsAre("[a{x]", "[{]"));
  EXPECT_THAT(parts(R"(\s)",
                    "a\xE1\xA0\x8E"
                    "b\xC2\x85"),
              ElementsAre("a\xE1\xA0\x8E"
                          "b",
                          "[\xC2\x85]"))
      << "U+180E is no space";
  EXPECT_THAT(parts(R"(x*)", "axxb"), ElementsAre("[]", "a", "[xx]", "b", "[]"));
  EXPECT_THAT(parts(R"(\w+)", "a\xC2\xB2_1"), ElementsAre("[a\xC2\xB2_1]"));
  EXPECT_THAT(parts(R"([\w]+)", "a\xC2\xB2_1"), ElementsAre("[a]", "\xC2\xB2", "[_1]")) << "a set has fewer characters than \\w";
}

TEST(UnicodeRegex, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"((a)\1)", "the escape '\\1'"},
      {R"([a&&b])", "the intersection '&&'"},
      {R"([a[^b]])", "a negated set within a set"},
      {R"((?x: a ))", "the group '(?x'"},
      {R"((?~a))", "the group '(?~'"},
      {R"(\Ka)", "the escape '\\K'"},
      {R"(\R)", "the escape '\\R'"},
      {R"(\p{In_Latin})", "unknown property"},
      {R"(\p{L)", "without its '}'"},
      {R"(\p{L;})", "the property 'L;'"},
      {R"(a{2}?)", "'?' after {n}"},
      {R"(\xC3\xA9)", "a byte of a character"},
      {R"([[:graph:]])", "the class '[:graph:]'"},
      {R"((a)", "without its ')'"},
      {R"(a))", "a ')' without a group"},
      {R"([a)", "the end of the pattern"},
      {R"(*a)", "a quantifier without something to repeat"},
      {R"([z-a])", "a range that ends before it starts"},
      {R"(\)", "the end of the pattern"},
      {R"((?<=a+)b)", "lookbehind"},
      {R"(a{3,2})", "quantifier"},
      {R"(\x{D800})", "no character"},
  };
  for (const auto& [pattern, reason] : cases) {
    const std::string message = message_of<Fault>([&, pattern = pattern] { UnicodeRegex::from_oniguruma(pattern); });
    EXPECT_THAT(message, HasSubstr(reason)) << pattern;
    EXPECT_THAT(message, HasSubstr("'" + std::string(pattern) + "'")) << "the message names the pattern";
  }
  EXPECT_THAT(message_of<Fault>([] { UnicodeRegex::from_oniguruma(std::string(70'000, 'a')); }), HasSubstr("too long"));
  EXPECT_THAT(message_of<Fault>([] { UnicodeRegex::from_oniguruma(std::string(300, '(') + std::string(300, ')')); }),
              HasSubstr("200 nested groups"));
  EXPECT_THAT(message_of<Fault>([] { UnicodeRegex::from_oniguruma(std::string(20, '[') + std::string(20, ']')); }),
              HasSubstr("nested sets"));
}

TEST(UnicodeRegex, StopsAtItsLimits) {
  std::vector<PatternSpan> spans;
  const auto regex = UnicodeRegex::from_oniguruma("(?:a|a)*b");
  const std::string text = std::string(200, 'a') + "c ab";
  const std::string message = message_of<Fault>([&] { regex.find_all(text, spans); });
  EXPECT_THAT(message, HasSubstr("'(?:a|a)*b' fails at byte 0"));
  EXPECT_THAT(message, HasSubstr("limit"));
  regex.find_all("aab", spans);
  EXPECT_EQ(spans.size(), 1) << "the expression stays usable";
}

}  // namespace

}  // namespace zt::data::huggingface
