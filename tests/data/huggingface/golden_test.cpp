// Compares with what Hugging Face's tokenizers makes of the same files and texts.
#include <gmock/gmock.h>

#include <thread>

#include "golden_files.h"
#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

class GoldenTokenizers : public testing::TestWithParam<std::string> {};

class SeparateTokens : public GoldenTokenizers {};

// Returns the names of tokenizers whose decoders look at one token after the other, but for the first one.
std::vector<std::string> names_with_separate_tokens() {
  std::vector<std::string> names = golden_names();
  std::erase_if(names, [](const std::string& name) { return name == "ctc" || name == "prefix_suffix" || name == "replaced"; });
  return names;
}

TEST_P(GoldenTokenizers, EncodeAndDecodeAsTokenizers) {
  const auto tokenizer = golden_tokenizer(GetParam());
  for (const auto& expected : golden_encodings(GetParam())) {
    EXPECT_EQ(encoded(*tokenizer, expected.text), expected.none) << expected.text;
    EXPECT_EQ(encoded(*tokenizer, expected.text, {.specials = Specials::parsed, .contents = {}}), expected.parsed)
        << expected.text;
    EXPECT_EQ(encoded(*tokenizer, expected.text, {.specials = Specials::added, .contents = {}}), expected.added) << expected.text;
    EXPECT_EQ(tokenizer->decode(wide(expected.added)), expected.decoded) << expected.text;
  }
}

// If users wrote the whole text, no special token is recognized.
TEST_P(GoldenTokenizers, RecognizeNoSpecialTokenInContents) {
  const auto tokenizer = golden_tokenizer(GetParam());
  for (const auto& expected : golden_encodings(GetParam())) {
    const std::vector<TextRange> all{{0, expected.text.size()}};
    EXPECT_EQ(encoded(*tokenizer, expected.text, {.specials = Specials::parsed, .contents = all}), expected.none)
        << expected.text;
  }
}

// The first token decoded, and what each further one adds, is the decoded text, as long as it is UTF-8.
TEST_P(SeparateTokens, SayWhichBytesATokenAdds) {
  const auto tokenizer = golden_tokenizer(GetParam());
  int compared = 0;
  for (const auto& expected : golden_encodings(GetParam())) {
    std::vector<int64_t> ids = wide(expected.added);
    std::erase_if(ids, [&](int64_t id) { return tokenizer->is_special(id); });
    if (ids.empty() || tokenizer->decode(std::vector{ids[0]}).find("\xEF\xBF\xBD") != std::string::npos) continue;
    std::string text = tokenizer->decode(std::vector{ids[0]});
    for (size_t i = 1; i < ids.size(); ++i) text += tokenizer->bytes_of(ids[i]);
    if (huggingface::find_bad_utf8(text) != std::string::npos) continue;
    EXPECT_EQ(text, expected.decoded) << expected.text;
    ++compared;
  }
  EXPECT_GT(compared, 80);
}

TEST_P(GoldenTokenizers, KnowTheirVocabulary) {
  const std::string file = golden_text(GetParam() + ".json");
  const auto tokenizer = parse_huggingface_tokenizer(file, "a.json");
  EXPECT_STREQ(tokenizer->kind(), "tokenizer.json");
  EXPECT_EQ(tokenizer->model(), file);
  const auto document = nlohmann::json::parse(file);
  int64_t largest = -1;
  for (const auto& [key, value] : document["model"]["vocab"].items()) {
    const int64_t id = value.is_array() ? std::stoll(key) : value.get<int64_t>();
    EXPECT_EQ(tokenizer->id_of(value.is_array() ? value[0].get<std::string>() : key), id);
    largest = std::max(largest, id);
  }
  for (const auto& token : document["added_tokens"]) {
    const auto id = token["id"].get<int64_t>();
    largest = std::max(largest, id);
    EXPECT_EQ(tokenizer->id_of(token["content"].get<std::string>()), id);
    EXPECT_EQ(tokenizer->is_special(id), token["special"].get<bool>());
    EXPECT_EQ(tokenizer->bytes_of(id).empty(), token["special"].get<bool>()) << token;
  }
  EXPECT_EQ(tokenizer->vocab(), largest + 1);
  EXPECT_EQ(tokenizer->id_of("no such token"), std::nullopt);
  EXPECT_THROW(tokenizer->decode(std::vector<int64_t>{largest + 1}), Misuse);
  EXPECT_THROW(tokenizer->decode(std::vector<int64_t>{-1}), Misuse);
  EXPECT_THROW(tokenizer->bytes_of(largest + 1), Misuse);
  EXPECT_THROW(tokenizer->is_special(-1), Misuse);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizers, testing::ValuesIn(golden_names()), [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(All, SeparateTokens, testing::ValuesIn(names_with_separate_tokens()),
                         [](const auto& info) { return info.param; });

TEST(GoldenTokenizer, AppendsToTheIdsThatAreThere) {
  const auto tokenizer = golden_tokenizer("bert");
  std::vector<int32_t> ids = encoded(*tokenizer, "the rain", {.specials = Specials::added, .contents = {}}), twice = ids;
  tokenizer->encode("the rain", twice, {.specials = Specials::added, .contents = {}});
  ids.insert(ids.end(), ids.begin(), ids.end());
  EXPECT_EQ(twice, ids);
}

TEST(GoldenTokenizer, EncodesInSeveralThreads) {
  const auto tokenizer = golden_tokenizer("llama3");
  const auto expected = golden_encodings("llama3");
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        for (const auto& each : expected) count += encoded(*tokenizer, each.text) != each.none;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace

}  // namespace zt::data
