#include "tokenizer/tokenizer.h"

#include "data/support/folder.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

const std::string kHard =
    "Na\xC3\xAFve caf\xC3\xA9  two spaces\n\n\ttab \xE2\x82\xAC 5, \xF0\x9F\x98\x80 \xE4\xB8\xAD\xE6\x96\x87 end \n";

// Repeated words, with enough variety for a few hundred pieces.
std::string some_text() {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format("the {}th word of {} lines\n", i, i * 7919 % 1000);
  return text;
}

std::shared_ptr<Tokenizer> trained(const std::string& type = "bpe") {
  return train_sentencepiece(some_text(), {.vocab = 400, .type = type}, "some text");
}

std::vector<int64_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return {ids.begin(), ids.end()};
}

}  // namespace

TEST(Tokenizer, BytesRoundTrip) {
  const auto bytes = byte_tokenizer();
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  for (const std::string& text : {std::string(), kHard, every}) {
    const auto ids = encode(*bytes, text);
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(bytes->decode(ids), text);
  }
  EXPECT_EQ(bytes->vocab(), 256);
  const std::vector<int64_t> wrong{256};
  EXPECT_THAT(message_of<Misuse>([&] { bytes->decode(wrong); }), HasSubstr("0 to 255"));
}

TEST(Tokenizer, PiecesRoundTrip) {
  for (const std::string type : {"bpe", "unigram"}) {
    const auto tokenizer = trained(type);
    EXPECT_EQ(tokenizer->vocab(), 400);
    for (const std::string& text : {std::string(), std::string(" "), std::string("\n"), kHard, some_text()}) {
      const auto ids = encode(*tokenizer, text);
      EXPECT_EQ(tokenizer->decode(ids), text) << type;
      for (const int64_t id : ids) EXPECT_TRUE(id > 0 && id < 400) << "nothing is unknown";
    }
    const std::vector<int64_t> wrong{400};
    EXPECT_THAT(message_of<Misuse>([&] { tokenizer->decode(wrong); }), HasSubstr("0 to 399"));
  }
}

TEST(Tokenizer, WordsBecomePieces) {
  EXPECT_LT(encode(*trained(), some_text()).size(), some_text().size() / 2);
}

// Encoding a long text in parts relies on this.
TEST(Tokenizer, LinesEncodeIndependently) {
  const auto tokenizer = trained();
  const std::string a = "the first word\n", b = " the 2nd caf\xC3\xA9\n";
  auto parts = encode(*tokenizer, a);
  const auto second = encode(*tokenizer, b);
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(encode(*tokenizer, a + b), parts);
}

TEST(Tokenizer, TrainingIsRepeatable) {
  EXPECT_EQ(trained()->model(), trained()->model());
}

TEST(Tokenizer, LearnsFromASampleOfAllOfTheText) {
  // The sample must cover both halves of the text: words of the second half become pieces, too.
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "aardvark abacus abbey\n";
  for (int i = 0; i < 20000; ++i) text += "zebra zenith zone\n";
  const auto tokenizer = train_sentencepiece(text, {.vocab = 300, .sample_bytes = 1 << 16}, "a to z");
  EXPECT_LE(encode(*tokenizer, "aardvark").size(), 2U);
  EXPECT_LE(encode(*tokenizer, "zebra").size(), 2U);
}

TEST(Tokenizer, SaysWhyItCannotLearn) {
  EXPECT_THAT(message_of<Misuse>([] { train_sentencepiece("", {}, "empty.txt"); }), HasSubstr("'empty.txt': it has no text"));
  EXPECT_THAT(message_of<Misuse>([] { train_sentencepiece("\n\n\n", {}, "empty.txt"); }), HasSubstr("it has no text"));
  EXPECT_THAT(
      message_of<Misuse>([] { train_sentencepiece("a few words\n", {.vocab = 4096}, "few.txt"); }),
      testing::MatchesRegex("cannot learn 4096 pieces from 'few.txt': it has no more than 2[0-9]+, and 300 are the fewest. "
                            "Give more text, or use the byte tokenizer"));
  std::string words;
  for (int i = 0; i < 2000; ++i) words += fmt::format("w{}x ", i * 7919 % 2003);
  EXPECT_THAT(
      message_of<Misuse>([&] { train_sentencepiece(words, {.vocab = 100000}, "words.txt"); }),
      testing::MatchesRegex("cannot learn 100000 pieces from 'words.txt': it has no more than [0-9]+. Give vocab = [0-9]+ "
                            "or less, or more text"));
  // 100 characters of two bytes, the space and the marks of words and of unknown characters need pieces besides the 256 bytes.
  std::string many;
  for (int i = 0; i < 3000; ++i) {
    many += {static_cast<char>(0xD0 + i % 100 / 64), static_cast<char>(0x80 + i % 100 % 64), i % 7 == 6 ? '\n' : ' '};
  }
  const std::string refused = message_of<Misuse>([&] { train_sentencepiece(many, {.vocab = 300}, "many.txt"); });
  EXPECT_THAT(refused, testing::MatchesRegex("cannot learn 300 pieces from 'many.txt': its characters alone, with 256 single "
                                             "bytes and the unknown piece, need 3[0-9]+. Give vocab = 3[0-9]+ or more"));
  const int64_t least = std::stoll(refused.substr(refused.rfind('=') + 2));
  EXPECT_THAT(message_of<Misuse>([&] { train_sentencepiece(many, {.vocab = least - 1}, "many.txt"); }), HasSubstr("or more"));
}

TEST(Tokenizer, LoadsAModel) {
  const Folder folder;
  const auto tokenizer = trained();
  const auto loaded = load_tokenizer(folder.put("a.model", tokenizer->model()));
  EXPECT_EQ(encode(*loaded, kHard), encode(*tokenizer, kHard));
  EXPECT_THAT(message_of<Fault>([&] { load_tokenizer(folder.put("b.model", "nonsense")); }),
              HasSubstr("not a sentencepiece model"));
  EXPECT_THAT(message_of<Fault>([&] { load_tokenizer(folder.put("c.model", "")); }), HasSubstr("not a sentencepiece model"));
  EXPECT_THAT(message_of<Fault>([&] { load_tokenizer(folder / "missing.model"); }), HasSubstr("cannot open"));
  EXPECT_THAT(message_of<Fault>([&] { load_tokenizer(folder.put_tokens("a.npy", {1})); }),
              HasSubstr("give the path of the model"));
}

}  // namespace zt::data
