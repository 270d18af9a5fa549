#include "tokenizer/tokenize.h"

#include "data/support/folder.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/text_reader.h"
#include "tokens/companion.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"

namespace zt::data {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string long_text() {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += fmt::format("line {} of a text: caf\xC3\xA9\n", i);
  return text;
}

std::vector<int64_t> tokens_of(const std::string& path) {
  const NpyFile file(path);
  std::vector<int64_t> all;
  file.visit(0, file.count(), [&](auto values, int64_t) { all.insert(all.end(), values.begin(), values.end()); });
  return all;
}

}  // namespace

TEST(Tokenize, WritesTokensModelAndCompanion) {
  const Folder folder;
  const std::string text = long_text(), input = folder.put("in.txt", text), output = folder / "out.npy";
  const auto tokenizer = train_sentencepiece(text, {.vocab = 350}, input);
  int64_t seen = 0;
  const int64_t count = tokenize_file(input, output, *tokenizer, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, seen);
    EXPECT_EQ(total, static_cast<int64_t>(text.size()));
    seen = done;
  });
  EXPECT_EQ(seen, static_cast<int64_t>(text.size()));
  EXPECT_THAT(folder.names(), ElementsAre("in.txt", "out.json", "out.model", "out.npy"));

  const auto ids = tokens_of(output);
  EXPECT_EQ(static_cast<int64_t>(ids.size()), count);
  EXPECT_EQ(load_tokenizer(output)->decode(ids), text) << "the companion names the tokenizer that decodes";
  std::vector<int32_t> whole;
  tokenizer->encode(text, whole);
  EXPECT_EQ(ids, std::vector<int64_t>(whole.begin(), whole.end())) << "encoding in parts changes nothing";
  EXPECT_EQ(read_companion(output)->source_hash, content_hash(text));

  folder.put("out.model", tokenizer->model() + "x");
  EXPECT_THAT(message_of<Fault>([&] { load_tokenizer(output); }), HasSubstr("is not the tokenizer model"));
}

TEST(Tokenize, ByBytes) {
  const Folder folder;
  const std::string binary("any \xFF\x00 bytes", 12), input = folder.put("in.bin", binary), output = folder / "out.npy";
  EXPECT_EQ(tokenize_file(input, output, *byte_tokenizer(), nullptr), 12);
  EXPECT_THAT(folder.names(), ElementsAre("in.bin", "out.json", "out.npy"));
  EXPECT_EQ(load_tokenizer(output)->decode(tokens_of(output)), binary);
  EXPECT_EQ(NpyFile(output).type(), NpyType::u16);
}

TEST(Tokenize, LeavesNothingWhenItFails) {
  const Folder folder;
  const std::string input = folder.put("in.txt", long_text()), output = folder / "out.npy";
  const auto stop = [](int64_t, int64_t) { fault("stopped"); };
  EXPECT_EQ(message_of<Fault>([&] { tokenize_file(input, output, *byte_tokenizer(), stop); }), "stopped");
  EXPECT_THAT(folder.names(), ElementsAre("in.txt"));
}

TEST(Tokenize, RefusesTextsItCannotRead) {
  const Folder folder;
  const auto pieces = train_sentencepiece(long_text(), {.vocab = 350}, "text");
  const auto attempt = [&](const std::string& input) { tokenize_file(input, folder / "out.npy", *pieces, nullptr); };
  EXPECT_THAT(message_of<Fault>([&] { attempt(folder / "missing.txt"); }), HasSubstr("missing.txt"));
  EXPECT_THAT(message_of<Fault>([&] { attempt(folder.put("empty.txt", "")); }), HasSubstr("is empty"));
  EXPECT_THAT(message_of<Fault>([&] { attempt(folder.put("latin.txt", "caf\xE9 au lait")); }),
              HasSubstr("not UTF-8 (byte 3 is 0xe9)"));
  EXPECT_THAT(message_of<Misuse>([&] { tokenize_file(folder.put("a.txt", "a"), folder / "out.bin", *pieces, nullptr); }),
              HasSubstr(".npy"));
  EXPECT_THAT(folder.names(), testing::Not(testing::Contains("out.npy")));
}

// The text is longer than the reader's buffer. It has no lines, and parts of any even size end within a character.
TEST(Tokenize, ReadsLargeTextsInParts) {
  const Folder folder;
  std::string text;
  for (int64_t i = 0; text.size() < 2'500'000; ++i) text += fmt::format("{}\xC3\xA9 ", i * 7919 % 10007);
  const std::string input = folder.put("in.txt", text), output = folder / "out.npy";
  const auto tokenizer = train_sentencepiece(text, {.vocab = 300}, input);
  tokenize_file(input, output, *tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->decode(tokens_of(output)) == text);
  EXPECT_EQ(read_companion(output)->source_hash, content_hash(text));
  EXPECT_EQ(content_hash(text), fmt::format("{:016x}", stable_hash(text)));

  const size_t bad = text.find(' ', 2'000'000);
  text[bad] = '\xFF';
  folder.put("in.txt", text);
  EXPECT_THAT(message_of<Fault>([&] { tokenize_file(input, output, *tokenizer, nullptr); }),
              HasSubstr(fmt::format("not UTF-8 (byte {} is 0xff)", bad)));
}

TEST(Tokenize, LearnsTheSameFromAFileAsFromMemory) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 6; ++i) text += long_text();
  FileText file(folder.put("in.txt", text));
  const TrainOptions options{.vocab = 350, .sample_bytes = 1 << 17};
  EXPECT_EQ(train_sentencepiece(file, options, "in.txt")->model(), train_sentencepiece(text, options, "in.txt")->model());
}

// A mapped text would kill the process here.
TEST(Tokenize, SaysThatATextWasTruncatedWhileItWasRead) {
  const Folder folder;
  const std::string input = folder.put("in.txt", std::string(3 << 20, 'x')), output = folder / "out.npy";
  const auto cut = [&](int64_t, int64_t) { std::filesystem::resize_file(input, 2 << 20); };
  EXPECT_THAT(message_of<Fault>([&] { tokenize_file(input, output, *byte_tokenizer(), cut); }),
              testing::AllOf(HasSubstr("in.txt"), HasSubstr("was truncated while it was in use")));
  EXPECT_THAT(folder.names(), ElementsAre("in.txt"));
}

TEST(Tokenize, KnowsUtf8) {
  constexpr size_t kValid = std::string_view::npos;
  for (const std::string good : {"", "plain", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF",
                                 "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(find_invalid_utf8(good), kValid) << good;
  }
  // A lone continuation byte, overlong forms, a surrogate, values above U+10FFFF, incomplete characters, and no UTF-8 at all.
  for (const std::string bad : {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8("ok" + bad), 2U);
    EXPECT_EQ(find_invalid_utf8("ok" + bad + " and more"), 2U);
  }
}

TEST(Tokenize, SplitsAfterLinesThenWordsThenCharacters) {
  EXPECT_EQ(next_chunk("short", 100), 5U);
  EXPECT_EQ(next_chunk("one\ntwo\nthree", 9), 8U);
  EXPECT_EQ(next_chunk("one two three", 9), 7U) << "the space stays with the word after it";
  EXPECT_EQ(next_chunk(" abcdefgh", 4), 4U);
  EXPECT_EQ(next_chunk("abc\xE2\x82\xAC", 4), 3U) << "never inside a character";
  EXPECT_EQ(next_chunk("\xE2\x82\xAC\xE2\x82\xAC", 1), 1U) << "at least one byte";
}

// The names of the companion files follow from the output's name: none of them may be the text itself.
TEST(Tokenize, NeverReplacesTheTextOrAFolder) {
  const Folder folder;
  const auto tokenizer = byte_tokenizer();
  const std::string text = folder.put("a.json", "some text\n");
  EXPECT_THAT(message_of<Misuse>([&] { tokenize_file(text, folder / "a.npy", *tokenizer, {}); }),
              testing::HasSubstr("would replace the text"));
  EXPECT_EQ(read_text(text), "some text\n");
  std::filesystem::create_directory(folder / "b.npy");
  EXPECT_THAT(message_of<Misuse>([&] { tokenize_file(text, folder / "b.npy", *tokenizer, {}); }),
              testing::HasSubstr("not a regular file"));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a.json", "b.npy"}));
  EXPECT_THAT(message_of<Misuse>([&] { check_tokenize(text, folder / "none/c.npy"); }),
              testing::HasSubstr("none/c.npy': there is no folder '" + folder / "none" + "': make it first (mkdir -p)"));
  const std::string missing = message_of<Fault>([&] { check_tokenize(folder / "none.txt", folder / "c.npy"); });
  EXPECT_THAT(missing, testing::HasSubstr("none.txt': No such file or directory: check the path"));
  EXPECT_THAT(missing, testing::Not(testing::HasSubstr("folder first")));
}

}  // namespace zt::data
