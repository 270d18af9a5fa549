#include "tokenizer/document_writer.h"

#include "data/support/folder.h"
#include "io/content.h"
#include "io/faults/fault_fs.h"
#include "io/faults/outcome.h"
#include "tokenizer/text_lines.h"
#include "zt/base/error.h"
#include "zt/io/io_errors.h"

namespace zt::data {

namespace {

using Items = DocumentWriter::Items;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> numbers_of(const std::string& path) {
  const NpyFile file(path);
  std::vector<int64_t> all;
  file.visit(0, file.count(), [&](auto values, int64_t) { all.insert(all.end(), values.begin(), values.end()); });
  return all;
}

Companion of_prompts(const std::string& source) {
  Companion companion{.tokens = 0,
                      .vocab = 0,
                      .tokenizer = {},
                      .model = {},
                      .model_hash = {},
                      .source = source,
                      .source_bytes = 1,
                      .source_hash = "00"};
  companion.documents =
      DocumentsNote{.kind = "prompts", .mask_of = "none", .template_hash = {}, .records = 2, .stop_tokens = {1}};
  return companion;
}

void write_two(DocumentWriter& writer, const std::string& source) {
  for (const std::string& line : {std::string(R"({"a": 1})"), source}) {
    writer.add(std::vector<int32_t>{97, 98, 99}, std::vector<uint8_t>{0, 1, 1});
    writer.add_item(line);
  }
  writer.commit(of_prompts(source));
}

}  // namespace

TEST(DocumentWriter, WritesTokensMaskAndOffsets) {
  const Folder folder;
  DocumentWriter writer(byte_tokenizer(), folder / "a.npy", Items::none);
  writer.add(std::vector<int32_t>{1, 2, 3}, std::vector<uint8_t>{0, 1, 1});
  writer.add(std::vector<int32_t>{255}, std::vector<uint8_t>{0});
  EXPECT_THAT(folder.names(), ElementsAre("a.mask.npy.partial", "a.npy.partial", "a.offsets.npy.partial"));
  writer.commit(of_prompts("x"));
  EXPECT_THAT(folder.names(), ElementsAre("a.json", "a.mask.npy", "a.npy", "a.offsets.npy"));
  EXPECT_THAT(numbers_of(folder / "a.npy"), ElementsAre(1, 2, 3, 255));
  EXPECT_THAT(numbers_of(folder / "a.mask.npy"), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(numbers_of(folder / "a.offsets.npy"), ElementsAre(0, 3, 4));
  EXPECT_EQ(NpyFile(folder / "a.mask.npy").type(), NpyType::u8);
  EXPECT_EQ(NpyFile(folder / "a.offsets.npy").type(), NpyType::i64);
  const auto companion = read_companion(folder / "a.npy");
  EXPECT_EQ(companion->tokens, 4);
  EXPECT_EQ(companion->vocab, 256);
  EXPECT_EQ(companion->tokenizer, "bytes");
  EXPECT_EQ(companion->documents->kind, "prompts");
}

TEST(DocumentWriter, LeavesNothingWithoutACommit) {
  const Folder folder;
  {
    DocumentWriter writer(byte_tokenizer(), folder / "a.npy", Items::lines);
    writer.add(std::vector<int32_t>{1}, std::vector<uint8_t>{0});
    writer.add_item("{}");
    EXPECT_EQ(folder.names().size(), 4U);
    writer.discard();
    EXPECT_TRUE(folder.names().empty());
    EXPECT_THAT(message_of<Misuse>([&] { writer.add_item("{}"); }), HasSubstr("was committed or discarded"));
  }
  { DocumentWriter writer(byte_tokenizer(), folder / "a.npy", Items::lines); }
  EXPECT_TRUE(folder.names().empty());
}

TEST(DocumentWriter, RefusesWhatIsWrong) {
  const Folder folder;
  DocumentWriter writer(byte_tokenizer(), folder / "a.npy", Items::none);
  EXPECT_THAT(message_of<Misuse>([&] {
                writer.add(std::vector<int32_t>{1, 2}, std::vector<uint8_t>{0});
              }),
              HasSubstr("2 tokens needs as many numbers in its mask, got 1"));
  EXPECT_THAT(message_of<Misuse>([&] { writer.add({}, {}); }), HasSubstr("without tokens"));
  EXPECT_THAT(message_of<Misuse>([&] { writer.add_item("{}"); }), HasSubstr("only prompts"));
  EXPECT_THAT(message_of<Misuse>([&] { writer.commit({}); }), HasSubstr("there is no document to write"));
}

TEST(DocumentWriter, ChecksNames) {
  const Folder folder;
  const std::string input = folder.put("a.items.jsonl", "{}");
  EXPECT_THAT(message_of<Misuse>([&] { check_documents(input, folder / "a.npy"); }), HasSubstr("would replace the text"));
  EXPECT_THAT(message_of<Misuse>([&] { check_documents(input, folder / "no/a.npy"); }), HasSubstr("there is no folder"));
  EXPECT_THAT(message_of<Fault>([&] { check_documents(folder.put("b.jsonl", ""), folder / "a.npy"); }), HasSubstr("is empty"));
  check_documents(input, folder / "b.npy");
}

TEST(DocumentWriter, RemovesItemsOfAnotherKind) {
  const Folder folder;
  DocumentWriter prompts(byte_tokenizer(), folder / "a.npy", Items::lines);
  write_two(prompts, "one");
  EXPECT_EQ(read_text(folder / "a.items.jsonl"), "{\"a\": 1}\none\n");
  DocumentWriter writer(byte_tokenizer(), folder / "a.npy", Items::none);
  writer.add(std::vector<int32_t>{1}, std::vector<uint8_t>{0});
  writer.commit(of_prompts("x"));
  EXPECT_THAT(folder.names(), ElementsAre("a.json", "a.mask.npy", "a.npy", "a.offsets.npy"));
}

// Whatever call fails or is the last one, a NAME.npy lies beside complete files that were written with it.
TEST(DocumentWriter, IsCompleteOrMissingAfterTroubleAtAnyCall) {
  using What = io::Trouble::What;
  for (const auto& [what, error] : {std::pair{What::error, ENOSPC}, {What::error, EIO}, {What::death, 0}}) {
    for (int64_t call = 0;; ++call) {
      io::FaultFs files;
      {
        DocumentWriter old(byte_tokenizer(), "a.npy", Items::lines, files);
        write_two(old, "old");
      }
      files.plan({what, call, error});
      const io::Outcome outcome = io::outcome_of([&] {
        DocumentWriter writer(byte_tokenizer(), "a.npy", Items::lines, files);
        write_two(writer, "new");
      });
      const bool is_over = call >= static_cast<int64_t>(files.calls().size());
      const auto other = files.for_other_process();
      const auto text_of = [&](const std::string& name) {
        const io::Bytes bytes = io::read_whole(*other, name);
        return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      };
      const bool is_there = other->kind_of("a.npy") == io::EntryKind::file;
      EXPECT_TRUE(is_there || outcome != io::Outcome::done) << "call " << call;
      if (is_there) {
        const bool is_new = text_of("a.json").find("\"new\"") != std::string::npos;
        EXPECT_EQ(is_new ? "new\n" : "old\n", text_of("a.items.jsonl").substr(9)) << "call " << call;
        EXPECT_FALSE(is_new && outcome == io::Outcome::fault && call + 2 < static_cast<int64_t>(files.calls().size()));
      }
      if (!is_over) continue;
      EXPECT_EQ(outcome, io::Outcome::done);
      EXPECT_GT(call, 10);
      break;
    }
  }
}

TEST(DocumentWriter, LeavesNoPartOnAFullDisk) {
  io::FaultFs files({.capacity = 4096});
  EXPECT_THROW(
      {
        DocumentWriter writer(byte_tokenizer(), "a.npy", Items::none, files);
        for (;;) writer.add(std::vector<int32_t>(100, 1), std::vector<uint8_t>(100, 0));
      },
      io::DiskFull);
  EXPECT_TRUE(files.list("/").entries.empty());
}

TEST(TextLines, KnowsItsLinesAndTheHashOfTheFile) {
  const Folder folder;
  const std::string bytes = std::string("one\r\n\ntw\0o\n", 11) + std::string(300000, 'x') + "\nlast";
  TextLines lines(folder.put("a.txt", bytes));
  EXPECT_EQ(lines.next(), "one");
  EXPECT_EQ(lines.next(), "");
  EXPECT_EQ(lines.next(), std::string("tw\0o", 4));
  EXPECT_EQ(lines.next(), std::string(300000, 'x'));
  EXPECT_EQ(lines.number(), 4);
  EXPECT_EQ(lines.next(), "last");
  EXPECT_EQ(lines.next(), std::nullopt);
  EXPECT_EQ(lines.done(), lines.size());
  EXPECT_EQ(lines.hash(), content_hash(bytes));
  EXPECT_EQ(TextLines(folder.put("b.txt", "")).next(), std::nullopt);
}

}  // namespace zt::data
