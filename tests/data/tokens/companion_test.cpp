#include "tokens/companion.h"

#include <sys/stat.h>

#include "data/support/folder.h"
#include "tokens/token_file.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

const Companion kCompanion{.tokens = 3,
                           .vocab = 100,
                           .tokenizer = "sentencepiece",
                           .model = "a.model",
                           .model_hash = "00ff",
                           .source = "a.txt",
                           .source_bytes = 9,
                           .source_hash = "12ab"};

}  // namespace

TEST(Companion, ReadsWhatItWrites) {
  const Folder folder;
  folder.put("a.json", companion_text(kCompanion));
  const auto read = read_companion(folder / "a.npy");
  ASSERT_TRUE(read);
  EXPECT_EQ(companion_text(*read), companion_text(kCompanion));
  EXPECT_FALSE(read_companion(folder / "other.npy"));
  EXPECT_FALSE(read->documents);
}

TEST(Companion, SaysWhatDocumentsAre) {
  const Folder folder;
  Companion companion = kCompanion;
  for (const std::string hash : {"", "00aa"}) {
    companion.documents =
        DocumentsNote{.kind = "preferences", .mask_of = "completion", .template_hash = hash, .records = 5, .stop_tokens = {1, 2}};
    folder.put("a.json", companion_text(companion));
    const auto read = read_companion(folder / "a.npy");
    ASSERT_TRUE(read && read->documents);
    EXPECT_EQ(read->documents->stop_tokens, (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(read->documents->template_hash, hash);
    EXPECT_EQ(companion_text(*read), companion_text(companion));
  }
}

TEST(Companion, SaysWhatIsWrong) {
  const Folder folder;
  for (const std::string text : {"", "{", "[]", "{\"format\": \"ztoolkit tokens 9\"}", "{\"format\": \"ztoolkit tokens 1\"}"}) {
    folder.put("a.json", text);
    const std::string message = message_of<Fault>([&] { read_companion(folder / "a.npy"); });
    EXPECT_THAT(message, HasSubstr("a.json"));
    EXPECT_THAT(message, HasSubstr("ztoolkit tokenize"));
  }
}

// A companion from elsewhere must not name a file outside of its folder.
TEST(Companion, NamesAModelInItsOwnFolder) {
  const Folder folder;
  for (const std::string model : {"/etc/passwd", "../a.model", "sub/a.model", "..", "."}) {
    Companion companion = kCompanion;
    companion.model = model;
    folder.put("a.json", companion_text(companion));
    const std::string message = message_of<Fault>([&] { read_companion(folder / "a.npy"); });
    EXPECT_THAT(message, HasSubstr(folder / "a.json"));
    EXPECT_THAT(message, HasSubstr("its model is '" + model + "', which must be the plain name"));
  }
}

TEST(Companion, IsARegularFile) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "a.json").c_str(), 0600), 0);
  EXPECT_THAT(message_of<Fault>([&] { read_companion(folder / "a.npy"); }), HasSubstr("a.json': it is a FIFO"));
}

TEST(Companion, GivesTheVocabulary) {
  const Folder folder;
  const std::string path = folder.put_tokens("a.npy", {1, 2, 3});
  EXPECT_EQ(TokenFile(path).vocab(), 4) << "without a companion: the largest id + 1";
  EXPECT_EQ(TokenFile(path, 7).vocab(), 7);
  folder.put("a.json", companion_text(kCompanion));
  EXPECT_EQ(TokenFile(path).vocab(), 100);
  EXPECT_THAT(message_of<Misuse>([&] { TokenFile(path, 7); }), HasSubstr("vocab is 7"));
}

TEST(Companion, MustFitItsTokens) {
  const Folder folder;
  const std::string path = folder.put_tokens("a.npy", {1, 2, 3, 4});
  folder.put("a.json", companion_text(kCompanion));
  EXPECT_THAT(message_of<Fault>([&] { TokenFile file(path); }), HasSubstr("holds 4 tokens, but its companion"));
}

TEST(Companion, TokensHave16Or32Bits) {
  const Folder folder;
  EXPECT_THAT(message_of<Fault>([&] { TokenFile file(folder.put_tokens("a.npy", {1}, NpyType::i64)); }), HasSubstr("64-bit"));
  EXPECT_EQ(TokenFile(folder.put_tokens("b.npy", {70000}, NpyType::u32)).vocab(), 70001);
  EXPECT_EQ(TokenFile(folder.put_tokens("c.npy", {})).vocab(), 1);
}

TEST(Companion, HasTheNameOfItsTokenFile) {
  EXPECT_EQ(beside("x/corpus.npy", ".json"), "x/corpus.json");
  EXPECT_THAT(message_of<Misuse>([] { beside("corpus.bin", ".json"); }), HasSubstr("ends in .npy"));
}

}  // namespace zt::data
