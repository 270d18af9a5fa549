#include "stream/window_source.h"

#include <set>

#include "data/support/folder.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::HasSubstr;
using Cut = WindowSource::Cut;

std::shared_ptr<const TokenFile> file_of(const Folder& folder, const std::vector<int32_t>& tokens, int64_t vocab = 0) {
  return std::make_shared<const TokenFile>(folder.put_tokens("a.npy", tokens), vocab);
}

std::vector<int64_t> numbers(int64_t first, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(first + i);
  return out;
}

}  // namespace

TEST(WindowSource, LabelsAreTheNextTokens) {
  const Folder folder;
  const WindowSource source(file_of(folder, counting(17)), {0, 17}, 4, Cut::fixed);
  ASSERT_EQ(source.samples(), 4);
  const std::vector<Place> places{{0, 3}, {5, 0}};
  const Fields fields = source.make(places, 1);
  EXPECT_EQ(fields.at("tokens").scalar_type(), at::kLong);
  EXPECT_EQ(row(fields.at("tokens"), 0), numbers(12, 4));
  EXPECT_EQ(row(fields.at("labels"), 0), numbers(13, 4));
  EXPECT_EQ(row(fields.at("tokens"), 1), numbers(0, 4));
}

TEST(WindowSource, CountsWindowsOfOddSizes) {
  const Folder folder;
  const auto file = file_of(folder, counting(100));
  for (const auto& [tokens, expected] : {std::pair<int64_t, int64_t>{5, 1}, {6, 1}, {8, 1}, {9, 2}, {12, 2}, {13, 3}}) {
    EXPECT_EQ(WindowSource(file, {0, tokens}, 4, Cut::fixed).samples(), expected) << tokens;
  }
}

TEST(WindowSource, ExactlyOneWindow) {
  const Folder folder;
  for (const Cut cut : {Cut::fixed, Cut::shifted}) {
    const WindowSource source(file_of(folder, counting(5)), {0, 5}, 4, cut);
    EXPECT_EQ(source.samples(), 1);
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const std::vector<Place> place{{epoch, 0}};
      EXPECT_EQ(row(source.make(place, 3).at("labels"), 0), numbers(1, 4));
    }
  }
}

TEST(WindowSource, RefusesARangeWithoutAWindow) {
  const Folder folder;
  const auto file = file_of(folder, counting(4));
  const std::string message = message_of<Misuse>([&] { WindowSource(file, {0, 4}, 4, Cut::fixed); });
  EXPECT_THAT(message, HasSubstr("one window needs seq + 1 = 5"));
  EXPECT_THAT(message, HasSubstr("gives 4 of its 4 tokens"));
}

// For each size and epoch, windows stay in their range, and all shifts occur where there is room.
TEST(WindowSource, ShiftedWindowsStayInRange) {
  const Folder folder;
  const auto file = file_of(folder, counting(200));
  constexpr int64_t kSeq = 4;
  for (int64_t end = 10 + kSeq + 1; end < 60; ++end) {
    const WindowSource source(file, {10, end}, kSeq, Cut::shifted);
    std::set<int64_t> starts;
    for (int64_t epoch = 0; epoch < 100; ++epoch) {
      const std::vector<Place> places{{epoch, 0}, {epoch, source.samples() - 1}};
      const Fields fields = source.make(places, 7);
      const int64_t first = fields.at("tokens")[0][0].item<int64_t>(), last = fields.at("labels")[1][kSeq - 1].item<int64_t>();
      EXPECT_GE(first, 10);
      EXPECT_LT(last, end);
      starts.insert(first);
    }
    const bool has_room = end - 10 >= 2 * kSeq;
    EXPECT_TRUE(!has_room || starts.size() == static_cast<size_t>(kSeq)) << end;
  }
}

TEST(WindowSource, SplitsNeverOverlap) {
  const Folder folder;
  for (const int n : {20, 37, 101}) {
    const auto file = file_of(folder, counting(n));
    for (const double fraction : {0.25, 0.5}) {
      std::set<int64_t> seen[2];
      for (const Split split : {Split::train, Split::validation}) {
        const IndexRange range = split_range(n, fraction, split);
        const WindowSource source(file, range, 3, Cut::shifted);
        for (int64_t epoch = 0; epoch < 20; ++epoch) {
          for (int64_t i = 0; i < source.samples(); ++i) {
            const std::vector<Place> place{{epoch, i}};
            const Fields fields = source.make(place, 1);
            for (const int64_t token : row(fields.at("tokens"), 0)) seen[split == Split::train].insert(token);
            for (const int64_t label : row(fields.at("labels"), 0)) seen[split == Split::train].insert(label);
          }
        }
      }
      EXPECT_LT(*seen[1].rbegin(), *seen[0].begin()) << "train comes first and shares no token with validation";
    }
  }
}

TEST(WindowSource, SplitRangesPartition) {
  for (const int64_t n : {0, 1, 19, 20, 1000001}) {
    for (const double fraction : {0.0, 0.05, 0.5, 1.0}) {
      const IndexRange train = split_range(n, fraction, Split::train), validation = split_range(n, fraction, Split::validation);
      EXPECT_EQ(train.begin, 0);
      EXPECT_EQ(train.end, validation.begin);
      EXPECT_EQ(validation.end, n);
    }
  }
  EXPECT_EQ(split_range(100, 0.05, Split::validation).size(), 5);
}

TEST(WindowSource, SaysWhereATokenIsOutsideTheVocabulary) {
  const Folder folder;
  const auto file = file_of(folder, {0, 1, 2, 3, 99, 5, 6}, 10);
  const WindowSource source(file, {0, 7}, 2, Cut::fixed);
  const std::vector<Place> good{{0, 0}}, bad{{0, 1}};
  EXPECT_NO_THROW(source.make(good, 0));
  const std::string message = message_of<Fault>([&] { source.make(bad, 0); });
  EXPECT_THAT(message, HasSubstr("token 4 of"));
  EXPECT_THAT(message, HasSubstr("is 99, but the vocabulary has 10 ids"));
  EXPECT_THAT(message_of<Fault>([&] { source.entropy(); }), HasSubstr("token 4 of"));
}

TEST(WindowSource, EntropyOfItsOwnRange) {
  const Folder folder;
  const auto file = file_of(folder, {0, 0, 1, 1, 2, 2, 2, 2});
  // The first range holds ids 0 and 1 equally often, which gives ln 2. The second range holds one id.
  EXPECT_DOUBLE_EQ(WindowSource(file, {0, 4}, 2, Cut::fixed).entropy(), std::log(2.0));
  EXPECT_EQ(WindowSource(file, {4, 8}, 2, Cut::fixed).entropy(), 0.0);
}

}  // namespace zt::data
