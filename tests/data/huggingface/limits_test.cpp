// Texts that would take time in proportion to the square of their length, if the code were naive.
#include "golden_files.h"

namespace zt::data {

namespace {

constexpr size_t kLongText = 300'000;

std::string repeated(std::string_view part) {
  std::string text;
  while (text.size() < kLongText) text += part;
  return text;
}

TEST(LongTexts, AreOneWord) {
  for (const char* name : {"gpt2", "llama2", "llama2_metaspace", "bert", "t5", "no_unknown"}) {
    const auto tokenizer = golden_tokenizer(name);
    const auto ids = encoded(*tokenizer, repeated("abcdefgh"));
    EXPECT_GT(ids.size(), 0) << name;
  }
}

TEST(LongTexts, AreSpacesMarksOrSpecialTokens) {
  for (const char* name : {"gpt2", "llama3", "qwen2", "cl100k", "deepseek3", "bert", "albert", "byte_normalizer"}) {
    const auto tokenizer = golden_tokenizer(name);
    for (const char* part :
         {" ", "\n", " \n", "\xCC\x81\xCC\xA3", "<|a", "<|a|>", "1", "'", "\xE2\x80\x8D", "solo", "left ", " both "}) {
      encoded(*tokenizer, repeated(part), {.specials = Specials::parsed, .contents = {}});
    }
  }
}

TEST(LongTexts, KeepTheResultsOfTheirParts) {
  const auto tokenizer = golden_tokenizer("gpt2");
  const std::string text = repeated("A word and 12 others.\n");
  const auto one = encoded(*tokenizer, "A word and 12 others.\n"), all = encoded(*tokenizer, text);
  ASSERT_EQ(all.size(), one.size() * (text.size() / 22));
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], one[i % one.size()]);
}

// More words than the cache of words holds.
TEST(LongTexts, HaveManyWords) {
  const auto tokenizer = golden_tokenizer("llama3");
  std::vector<std::string> words;
  std::string text;
  for (int i = 0; i < 60'000; ++i) words.push_back(" w" + std::string(1, static_cast<char>('a' + i % 26)) + std::to_string(i));
  std::vector<int32_t> expected;
  for (const std::string& word : words) {
    text += word;
    const auto fresh = encoded(*tokenizer, word);
    expected.insert(expected.end(), fresh.begin(), fresh.end());
  }
  EXPECT_EQ(encoded(*tokenizer, text), expected);
}

}  // namespace

}  // namespace zt::data
