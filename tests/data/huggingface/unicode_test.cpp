#include "huggingface/text/unicode.h"

#include "golden_files.h"
#include "huggingface/text/byte_level.h"
#include "huggingface/text/normal_forms.h"

namespace zt::data::huggingface {

namespace {

struct NamedProperty {
  const char* name;
  bool (*has)(char32_t);
};

// Calls visit(character) for each character of the ranges.
template <class Visit>
void visit_ranges(const nlohmann::json& ranges, const Visit& visit) {
  for (const auto& range : ranges) {
    for (auto code = range[0].get<char32_t>(); code <= range[1].get<char32_t>(); ++code) visit(code);
  }
}

std::string normalized(const std::string& text, NormalForm form) {
  AlignedText aligned{text, 0, {}};
  normalize_form(aligned, form);
  return aligned.text;
}

// For every character of Unicode 14, the properties are those of tokenizers.
TEST(Unicode, HasThePropertiesOfTokenizers) {
  const auto golden = golden_json("properties.json");
  const NamedProperty properties[] = {
      {"punctuation", is_punctuation},         {"white_space", is_white_space},       {"numeric", is_numeric},
      {"nonspacing_mark", is_nonspacing_mark}, {"combining_mark", is_combining_mark}, {"control", is_control}};
  for (const auto& [name, has] : properties) {
    std::vector<bool> expected(0x110000, false);
    visit_ranges(golden[name], [&](char32_t code) { expected[code] = true; });
    int wrong = 0;
    visit_ranges(golden["assigned"], [&, has = has](char32_t code) {
      // BERT keeps these four, and removes U+FFFD: rules of its own, which are not a property.
      const bool is_own_rule = has == is_control && (code == '\t' || code == '\n' || code == '\r' || code == 0xFFFD);
      wrong += !is_own_rule && has(code) != expected[code];
    });
    EXPECT_EQ(wrong, 0) << name;
  }
}

TEST(Unicode, FindsTheFirstByteThatIsNotUtf8) {
  const std::pair<std::string, size_t> cases[] = {{"", std::string::npos},
                                                  {"plain", std::string::npos},
                                                  {"caf\xC3\xA9", std::string::npos},
                                                  {"a\x80", 1},
                                                  {"12345678\xC3", 8},
                                                  {"\xC0\x80", 0},
                                                  {"\xE0\x80\x80", 0},
                                                  {"\xED\xA0\x80", 0},
                                                  {"\xF4\x8F\xBF\xBF", std::string::npos},
                                                  {"\xF4\x90\x80\x80", 0},
                                                  {"\xF0\x9F\x98", 0},
                                                  {"12345678abc\xFF", 11}};
  for (const auto& [text, place] : cases) EXPECT_EQ(find_bad_utf8(text), place) << text;
}

// The examples of Unicode, chapter 3.9, tables 3-8 to 3-11.
TEST(Unicode, ReplacesBytesThatAreNotUtf8) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_bad_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_bad_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_bad_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(replace_bad_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Unicode, WritesEachCharacterAsItReadsIt) {
  for (const char32_t code : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_character(text, code);
    EXPECT_EQ(character_at(text, 0), code);
    EXPECT_EQ(bytes_of_character(text[0]), text.size());
    EXPECT_EQ(previous_character("a" + text, text.size() + 1), 1);
    EXPECT_EQ(find_bad_utf8(text), std::string::npos);
  }
}

TEST(ByteLevel, RestoresEachByte) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::string characters;
  append_byte_characters(characters, bytes);
  EXPECT_EQ(count_characters(characters), 256);
  EXPECT_EQ(bytes_of_characters(characters), bytes);
  EXPECT_EQ(bytes_of_characters(" "), std::nullopt);
  EXPECT_EQ(bytes_of_characters("\xE6\xBC\xA2"), std::nullopt);
}

// An accent comes from the character that it was decomposed from, and characters that do not change keep their places.
TEST(NormalForms, KeepThePlacesOfCharacters) {
  const std::string text = "x\xC3\xA9>\xCC\x81y";  // x, e with acute, >, acute, y
  AlignedText aligned{text, 1, {{0, 1}, {1, 3}, {1, 3}, {3, 4}, {4, 6}, {4, 6}, {6, 7}}};
  normalize_form(aligned, NormalForm::nfd);
  EXPECT_EQ(aligned.text, "xe\xCC\x81>\xCC\x81y");
  EXPECT_EQ(aligned.sources, (std::vector<TextRange>{{0, 1}, {1, 3}, {1, 3}, {1, 3}, {3, 4}, {4, 6}, {4, 6}, {6, 7}}));
  EXPECT_EQ(aligned.origin, 1);
  normalize_form(aligned, NormalForm::nfc);
  EXPECT_EQ(aligned.text, text);
  EXPECT_EQ(aligned.sources, (std::vector<TextRange>{{0, 1}, {1, 3}, {1, 3}, {3, 4}, {4, 6}, {4, 6}, {6, 7}}));
}

// Sorting a run of marks must not take time in proportion to its square.
TEST(NormalForms, TakeLongRunsOfMarks) {
  std::string text = "a", sorted = "a";
  for (int i = 0; i < 300'000; ++i) text += "\xCC\x81\xCC\xA3";  // above (class 230), below (class 220)
  for (int i = 0; i < 300'000; ++i) sorted += "\xCC\xA3";
  for (int i = 0; i < 300'000; ++i) sorted += "\xCC\x81";
  EXPECT_EQ(normalized(text, NormalForm::nfd), sorted);
}

}  // namespace

}  // namespace zt::data::huggingface
