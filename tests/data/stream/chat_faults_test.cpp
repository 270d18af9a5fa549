// Tests that damaged files of `ztoolkit tokenize --chat` are Faults that name the file, the defect and what to do.
#include "data/support/chat_files.h"
#include "stream/open.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two conversations of three tokens.
struct GoodFiles : ChatFiles {
  GoodFiles() { put("conversations", {{{1, 2, 3}, {0, 1, 1}}, {{4, 5, 6}, {0, 0, 1}}}); }
};

Value::Table fault_options(const ChatFiles& files) {
  return {{"path", files.path}, {"seq", 4}, {"batch", 1}, {"validation", 0}};
}

std::string fault_of(const ChatFiles& files) {
  return message_of<Fault>([&] { open_conversations(fault_options(files), World{})->batch(0); });
}

}  // namespace

TEST(ChatFaults, TheMask) {
  const GoodFiles files;
  const std::string mask = files.folder / "chat.mask.npy", again = "ztoolkit tokenize --chat";
  EXPECT_NO_THROW(open_conversations(fault_options(files), World{}));
  const auto fault_with = [&](const std::vector<int32_t>& values, NpyType type = NpyType::u8) {
    files.folder.put_tokens("chat.mask.npy", values, type);
    return fault_of(files);
  };
  EXPECT_THAT(fault_with({0, 1, 1, 0, 0}), AllOf(HasSubstr(mask + "' has 5 numbers"), HasSubstr("6 tokens"), HasSubstr(again)));
  EXPECT_THAT(fault_with({0, 1, 1, 0, 0, 1, 1}), HasSubstr("has 7 numbers"));
  EXPECT_THAT(fault_with({0, 1, 1, 0, 2, 1}), AllOf(HasSubstr("number 4 of the mask '" + mask + "' is 2"), HasSubstr(again)));
  EXPECT_THAT(fault_with({0, 1, 1, 0, 0, 1}, NpyType::u16), AllOf(HasSubstr(mask), HasSubstr("dtype '<u2'"), HasSubstr(again)));
  EXPECT_THAT(fault_with({0, 1, 1, 1, 0, 1}),
              AllOf(HasSubstr(mask + "' has a 1 in the first token of record 1"), HasSubstr(again)));
  files.folder.put("chat.mask.npy", "nonsense");
  EXPECT_THAT(fault_of(files), AllOf(HasSubstr(mask), HasSubstr("not an .npy file")));
  std::filesystem::remove(mask);
  EXPECT_THAT(fault_of(files), AllOf(HasSubstr("has no mask '" + mask), HasSubstr(again)));
}

// NumPy writes "|u1" for uint8, ztoolkit "<u1".
TEST(ChatFaults, BothNamesOfBytesAreRead) {
  const GoodFiles files;
  std::string mask = read_text(files.folder / "chat.mask.npy");
  ASSERT_NE(mask.find("<u1"), std::string::npos);
  mask.replace(mask.find("<u1"), 3, "|u1");
  files.folder.put("chat.mask.npy", mask);
  EXPECT_NO_THROW(open_conversations(fault_options(files), World{}));
}

TEST(ChatFaults, TheOffsets) {
  const GoodFiles files;
  const std::string offsets = files.folder / "chat.offsets.npy";
  const auto fault_with = [&](const std::vector<int32_t>& values) {
    files.folder.put_tokens("chat.offsets.npy", values, NpyType::i64);
    return fault_of(files);
  };
  for (const auto& bad : {std::vector<int32_t>{}, {0}, {1, 3, 6}, {0, 3, 5}, {0, 4, 3, 6}, {0, 3, 7}})
    EXPECT_THAT(fault_with(bad), AllOf(HasSubstr(offsets), HasSubstr("must ascend from 0 to its number of tokens, 6")));
  EXPECT_THAT(fault_with({0, 6}), AllOf(HasSubstr(offsets + "' has 1 documents, and the 2 conversations of"), HasSubstr("need 2"),
                                        HasSubstr("ztoolkit tokenize --chat")));
  std::filesystem::remove(offsets);
  EXPECT_THAT(fault_of(files), HasSubstr(offsets));
}

TEST(ChatFaults, TheCompanion) {
  GoodFiles files;
  const auto fault_with = [&](const std::string& kind, int64_t records) {
    files.companion.documents->kind = kind;
    files.companion.documents->records = records;
    files.put_companion();
    return fault_of(files);
  };
  const std::string companion = files.folder / "chat.json";
  EXPECT_THAT(fault_with("preferences", 2),
              AllOf(HasSubstr("holds preferences, as '" + companion), HasSubstr("data.preferences")));
  EXPECT_THAT(fault_with("conversations", 3), HasSubstr("has 2 documents, and the 3 conversations of"));
  EXPECT_THAT(fault_with("conversations", -1), HasSubstr("the -1 conversations"));
  files.companion.documents.reset();
  files.put_companion();
  EXPECT_THAT(fault_of(files), AllOf(HasSubstr("is made of a text and not of conversations"), HasSubstr(companion)));
  files.folder.put("chat.json", "{");
  EXPECT_THAT(fault_of(files), HasSubstr(companion));
  std::filesystem::remove(companion);
  EXPECT_THAT(fault_of(files), AllOf(HasSubstr("has no companion '" + companion), HasSubstr("ztoolkit tokenize --chat")));
}

TEST(ChatFaults, PreferencesHaveThreeDocumentsAndAPlainPrompt) {
  ChatFiles files;
  const auto fault_with = [&](const std::vector<TestDocument>& documents) {
    files.put("preferences", documents, 3);
    return message_of<Fault>([&] { open_preferences(fault_options(files), World{}); });
  };
  EXPECT_THAT(fault_with({{{1}, {0}}, {{2}, {1}}, {{3}, {1}}, {{4}, {0}}}),
              HasSubstr("has 4 documents, and the 1 preferences of"));
  EXPECT_THAT(fault_with({{{1, 2}, {0, 1}}, {{2}, {1}}, {{3}, {1}}}), HasSubstr("has a 1 in the prompt of record 0"));
}

TEST(ChatFaults, TokenFilesAreNotMasks) {
  const GoodFiles files;
  files.folder.put_tokens("bytes.npy", {1, 2, 3}, NpyType::u8);
  EXPECT_THAT(message_of<Fault>([&] { TokenFile(files.folder / "bytes.npy"); }),
              HasSubstr("has 8-bit numbers, where tokens are uint16"));
}

TEST(ChatFaults, Options) {
  const GoodFiles files;
  const auto refused = [&](const std::string& key, const Value& value) {
    auto options = fault_options(files);
    options[key] = value;
    return message_of<Misuse>([&] { open_conversations(options, World{}); });
  };
  EXPECT_THAT(refused("too_long", "split"), HasSubstr("data.conversations.too_long must be one of 'drop', 'cut', 'error'"));
  EXPECT_THAT(refused("padding", "both"), HasSubstr("must be one of 'right', 'left'"));
  EXPECT_THAT(refused("ignore_index", 3), HasSubstr("must be below 0, so that it is no token"));
  EXPECT_THAT(refused("vocab", 3), HasSubstr("unknown option 'vocab'"));
  EXPECT_THAT(refused("validation", 1), HasSubstr("no record of the 2 of"));
}

}  // namespace zt::data
