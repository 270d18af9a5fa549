#include "tokenizer/answer_tokens.h"

#include "data/huggingface/golden_files.h"
#include "data/huggingface/small_tokenizer.h"
#include "data/support/folder.h"
#include "tokenizer/tokenizer.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

// Returns the tokens as text: what counts in upper case, a special token as "|".
std::string marked(const AnswerTokens& found) {
  std::string text;
  for (size_t i = 0; i < found.tokens.size(); ++i) {
    const char letter = found.tokens[i] < 95 ? static_cast<char>(' ' + found.tokens[i]) : '|';
    const bool counts = found.counts[i] == 1;
    if (letter == '|') text += counts ? "!" : "|";
    else text += counts ? static_cast<char>(std::toupper(letter)) : letter;
  }
  return text;
}

std::shared_ptr<Tokenizer> with_end() {
  auto document = small_document();
  document["added_tokens"].push_back(small_added(95, "</s>", true));
  return small_tokenizer(document);
}

const std::vector<int64_t> kStops{95};

std::vector<int32_t> whole(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids, {Specials::parsed, {}});
  return ids;
}

}  // namespace

TEST(AnswerTokens, CountInTheirRanges) {
  const auto tokenizer = with_end();
  const std::vector<TextRange> answers{{4, 7}, {9, 10}};
  const AnswerTokens found =
      encode_answers(*tokenizer, {.text = "ask:yes;?n", .contents = {}, .answers = answers, .stop_tokens = kStops});
  EXPECT_EQ(marked(found), "ask:YES;?N");
  EXPECT_EQ(found.stopped, 0);
}

TEST(AnswerTokens, EndAtTheLastStopToken) {
  const auto tokenizer = with_end();
  const std::string text = "a:b</s>c</s>xyd:e";
  const std::vector<TextRange> answers{{2, 14}, {16, 17}};
  AnswerText given{.text = text, .contents = {}, .answers = answers, .stop_tokens = kStops, .ends_at_stop = true};
  AnswerTokens found = encode_answers(*tokenizer, given);
  EXPECT_EQ(marked(found), "a:B!C!xyd:E");
  EXPECT_EQ(found.stopped, 1);
  given.ends_at_stop = false;
  found = encode_answers(*tokenizer, given);
  EXPECT_EQ(marked(found), "a:B!C!XYd:E");
  EXPECT_EQ(found.stopped, 1);
}

TEST(AnswerTokens, NeverBeginADocument) {
  const auto tokenizer = with_end();
  const std::vector<TextRange> all{{0, 3}};
  EXPECT_EQ(marked(encode_answers(*tokenizer, {.text = "abc", .contents = {}, .answers = all})), "aBC");
  const std::vector<int64_t> begin{95};
  EXPECT_EQ(marked(encode_answers(*tokenizer, {.text = "abc", .contents = {}, .answers = all, .begin = begin})), "|ABC");
  const std::vector<TextRange> last{{2, 3}};
  EXPECT_EQ(marked(encode_answers(*tokenizer, {.text = "abc", .contents = {}, .answers = last, .counts_all = true})), "aBC");
}

TEST(AnswerTokens, ContinueAnotherDocument) {
  const auto tokenizer = with_end();
  const std::string text = "ask:yes</s>\n";
  const std::vector<TextRange> answers{{4, text.size()}};
  const AnswerTokens found = encode_answers(
      *tokenizer, {.text = text, .contents = {}, .answers = answers, .from = 4, .stop_tokens = kStops, .ends_at_stop = true});
  EXPECT_EQ(marked(found), "YES!") << "the first token counts, and nothing follows the last one that does";
}

TEST(AnswerTokens, EndWithAGivenToken) {
  const auto tokenizer = with_end();
  const std::vector<TextRange> answer{{1, 6}}, contents{{0, 6}};
  const std::string text = "ab</s>";
  const AnswerTokens found =
      encode_answers(*tokenizer, {.text = text, .contents = contents, .answers = answer, .stop_tokens = kStops, .end = 95});
  EXPECT_EQ(marked(found), "aB</S>!") << "what users wrote is no special token";
  EXPECT_EQ(found.stopped, 1);
}

// Tokenizers that put a space before each text must not put one in the middle of a document.
TEST(EncodeContinuation, AddsNoSpace) {
  for (const char* name : {"llama2", "llama2_metaspace", "roberta", "gpt2", "llama3", "qwen2"}) {
    const auto tokenizer = golden_tokenizer(name);
    for (const std::string text : {"Hello there", " Hello", "...and so on", "42", "\xE4\xB8\x96"}) {
      std::vector<int32_t> rest;
      encode_continuation(*tokenizer, text, {}, -1, rest);
      std::string bytes;
      for (const int32_t id : rest) bytes += tokenizer->bytes_of(id);
      EXPECT_EQ(bytes, text) << name;
    }
  }
  const auto llama2 = golden_tokenizer("llama2");
  std::vector<int32_t> joined = whole(*llama2, "say:");
  encode_continuation(*llama2, " the\nthing", {}, joined.back(), joined);
  EXPECT_EQ(joined, whole(*llama2, "say: the\nthing"));
  // Llama 2's puts a space after a special token, too, llama2_metaspace's only before the whole text.
  for (const char* name : {"llama2", "llama2_metaspace"}) {
    const auto tokenizer = golden_tokenizer(name);
    joined = whole(*tokenizer, "say</s>");
    encode_continuation(*tokenizer, "the", {}, joined.back(), joined);
    EXPECT_EQ(joined, whole(*tokenizer, "say</s>the")) << name;
    const std::vector<TextRange> answers{{7, 10}};
    std::vector<int32_t> parts = whole(*tokenizer, "say</s>");
    const AnswerTokens rest = encode_answers(*tokenizer, {.text = "say</s>the", .answers = answers, .from = 7});
    parts.insert(parts.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(parts, joined) << name;
  }
}

TEST(EncodeContinuation, OfNothingIsNothing) {
  std::vector<int32_t> ids;
  encode_continuation(*golden_tokenizer("llama2"), "", {}, -1, ids);
  EXPECT_TRUE(ids.empty());
}

TEST(TokenOf, IsTheInverseOfIdOf) {
  for (const char* name : {"llama2", "gpt2", "bert", "t5"}) {
    const auto tokenizer = golden_tokenizer(name);
    for (int64_t id = 0; id < tokenizer->vocab(); ++id) {
      const std::string token = tokenizer->token_of(id);
      if (token.empty()) continue;
      EXPECT_EQ(tokenizer->id_of(token), id) << name << ": " << token;
    }
    EXPECT_THAT(message_of<Misuse>([&] { (void)tokenizer->token_of(tokenizer->vocab()); }), HasSubstr("cannot decode the id"));
  }
  EXPECT_EQ(byte_tokenizer()->token_of(65), "A");
}

}  // namespace zt::data
