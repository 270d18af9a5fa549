#include "stream/document_source.h"

#include "data/support/folder.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kIgnored = -100;

// Documents end with 0: "1 2 0", "3 0", "4 5 6 7 8 0", "0" (has nothing to predict), and "9 9" without a separator.
struct Text {
  Folder folder;
  std::shared_ptr<const TokenFile> file =
      std::make_shared<const TokenFile>(folder.put_tokens("a.npy", {1, 2, 0, 3, 0, 4, 5, 6, 7, 8, 0, 0, 9, 9}), 10);
  DocumentSource source(const RowOptions& options) const { return source_of(documents_by_separator(*file, 0), options); }
  DocumentSource source_of(std::vector<Document> documents, const RowOptions& options) const {
    return {std::make_unique<TextRecords>(file, std::move(documents), options.seq), options};
  }
};

Fields one(const DocumentSource& source, int64_t sample) {
  const std::vector<Place> place{{0, sample}};
  return source.make(place, 0);
}

}  // namespace

TEST(DocumentSource, FindsDocumentsBySeparator) {
  const Text text;
  const auto documents = documents_by_separator(*text.file, 0);
  ASSERT_EQ(documents.size(), 4U);
  EXPECT_EQ(documents[0].begin, 0);
  EXPECT_EQ(documents[0].size, 3);
  EXPECT_EQ(documents[2].begin, 5);
  EXPECT_EQ(documents[2].size, 6);
  EXPECT_EQ(documents[3].begin, 12);
  EXPECT_EQ(documents[3].size, 2);
  EXPECT_THAT(message_of<Misuse>([&] { documents_by_separator(*text.file, 10); }), HasSubstr("ids 0 to 9"));
}

TEST(DocumentSource, FindsDocumentsByOffsets) {
  const Text text;
  for (const NpyType type : {NpyType::u32, NpyType::i64, NpyType::u64}) {
    const auto documents = documents_by_offsets(*text.file, text.folder.put_tokens("o.npy", {0, 5, 6, 14}, type));
    ASSERT_EQ(documents.size(), 2U) << "a document of one token predicts nothing";
    EXPECT_EQ(documents[1].begin, 6);
    EXPECT_EQ(documents[1].size, 8);
  }
  for (const auto& bad : {std::vector<int32_t>{}, {0}, {1, 14}, {0, 13}, {0, 9, 5, 14}}) {
    const std::string path = text.folder.put_tokens("o.npy", bad, NpyType::u32);
    EXPECT_THAT(message_of<Fault>([&] { documents_by_offsets(*text.file, path); }),
                HasSubstr("must ascend from 0 to its number of tokens, 14"));
  }
}

TEST(DocumentSource, PadsShortAndCutsLongDocuments) {
  const Text text;
  const DocumentSource source = text.source({.seq = 4, .pad = 7});
  ASSERT_EQ(source.samples(), 4);
  const Fields first = one(source, 0);
  EXPECT_EQ(first.size(), 3U) << "no segments without pack";
  EXPECT_THAT(row(first.at("padding"), 0), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(row(first.at("tokens"), 0), ElementsAre(1, 2, 7, 7));
  EXPECT_THAT(row(first.at("labels"), 0), ElementsAre(2, 0, kIgnored, kIgnored));
  const Fields third = one(source, 2);
  EXPECT_THAT(row(third.at("tokens"), 0), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(row(third.at("labels"), 0), ElementsAre(5, 6, 7, 8));
  const Fields last = one(text.source({.seq = 5, .ignore_index = -1}), 3);
  EXPECT_THAT(row(last.at("labels"), 0), ElementsAre(9, -1, -1, -1, -1));
}

TEST(DocumentSource, PacksDocumentsWithSegmentsAndPositions) {
  const Text text;
  const DocumentSource source = text.source({.seq = 6, .pad = 7, .pack = true});
  // The rows have 2 + 1 and 5 + 1 predictions.
  ASSERT_EQ(source.samples(), 2);
  const Fields first = one(source, 0);
  EXPECT_THAT(row(first.at("tokens"), 0), ElementsAre(1, 2, 3, 7, 7, 7));
  EXPECT_THAT(row(first.at("labels"), 0), ElementsAre(2, 0, 0, kIgnored, kIgnored, kIgnored));
  EXPECT_THAT(row(first.at("segments"), 0), ElementsAre(0, 0, 1, 2, 2, 2));
  EXPECT_THAT(row(first.at("positions"), 0), ElementsAre(0, 1, 0, 0, 1, 2));
  EXPECT_THAT(row(first.at("padding"), 0), ElementsAre(0, 0, 0, 1, 1, 1));
  const Fields second = one(source, 1);
  EXPECT_THAT(row(second.at("tokens"), 0), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(row(second.at("segments"), 0), ElementsAre(0, 0, 0, 0, 0, 1));
  EXPECT_THAT(row(second.at("positions"), 0), ElementsAre(0, 1, 2, 3, 4, 0));
}

// No label belongs to the next document, and packing loses no prediction.
TEST(DocumentSource, PackingKeepsEveryPrediction) {
  const Text text;
  for (const bool pack : {false, true}) {
    const DocumentSource source = text.source({.seq = 8, .pack = pack});
    std::vector<std::pair<int64_t, int64_t>> predictions;
    for (int64_t i = 0; i < source.samples(); ++i) {
      const Fields fields = one(source, i);
      const auto tokens = row(fields.at("tokens"), 0), labels = row(fields.at("labels"), 0);
      for (size_t t = 0; t < tokens.size(); ++t) {
        if (labels[t] != kIgnored) predictions.emplace_back(tokens[t], labels[t]);
      }
    }
    const std::vector<std::pair<int64_t, int64_t>> expected{{1, 2}, {2, 0}, {3, 0}, {4, 5}, {5, 6},
                                                            {6, 7}, {7, 8}, {8, 0}, {9, 9}};
    EXPECT_EQ(predictions, expected);
  }
}

// The first row in which a record fits takes it, among the last rows that are open.
TEST(DocumentSource, PlansRowsFirstFit) {
  const auto rows_of = [](const std::vector<int64_t>& sizes, int64_t open_rows) {
    const RowPlan plan = plan_rows(sizes, {.seq = 10, .pack = true, .open_rows = open_rows});
    std::vector<std::vector<int64_t>> rows;
    for (size_t row = 0; row + 1 < plan.borders.size(); ++row) {
      rows.emplace_back(plan.records.begin() + plan.borders[row], plan.records.begin() + plan.borders[row + 1]);
    }
    return rows;
  };
  using Rows = std::vector<std::vector<int64_t>>;
  const std::vector<int64_t> sizes{7, 8, 3, 2, 10, 5, 5, 1};
  EXPECT_EQ(rows_of(sizes, 1), (Rows{{0}, {1}, {2, 3}, {4}, {5, 6}, {7}}));
  EXPECT_EQ(rows_of(sizes, 2), (Rows{{0, 2}, {1, 3}, {4}, {5, 6}, {7}}));
  EXPECT_EQ(rows_of(sizes, 8), (Rows{{0, 2}, {1, 3}, {4}, {5, 6}, {7}}));
  EXPECT_EQ(rows_of({6, 6, 6, 4, 4}, 2), (Rows{{0}, {1, 3}, {2, 4}})) << "the first row is closed when the third begins";
  EXPECT_EQ(rows_of({}, 3), Rows());
}

TEST(DocumentSource, RefusesNoDocumentsAndABadPad) {
  const Text text;
  EXPECT_THAT(message_of<Misuse>([&] { text.source_of({}, {.seq = 4}); }), HasSubstr("no document of at least two tokens"));
  EXPECT_THAT(message_of<Misuse>([&] { text.source({.seq = 4, .pad = 10}); }), HasSubstr("pad is 10"));
}

}  // namespace zt::data
