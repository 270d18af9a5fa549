// Transfers that are under way at the same time.
#include "play/transfers.h"

#include <gtest/gtest.h>

#include <map>

namespace zt::test {
namespace {

constexpr LinkUse kAcross{0, 1}, kInside{1, 0}, kHalf{0, 0.5};

// Adds the transfers, ends all of them, and returns when they were under way.
std::vector<PlaySpan> spans_of(size_t lanes, const std::vector<TransferLanes::Transfer>& list) {
  TransferLanes transfers(lanes);
  std::vector<PlaySpan> spans(list.size());
  for (size_t i = 0; i < list.size(); ++i) transfers.add(list[i], [&spans, i](const PlaySpan& span) { spans[i] = span; });
  while (transfers.finish_next()) {
  }
  return spans;
}

TEST(Transfers, ShareALinkEvenly) {
  const auto spans = spans_of(2, {{0, 0, 1, kAcross, {0}}, {1, 0, 1, kAcross, {0, 1}}});
  EXPECT_DOUBLE_EQ(spans[0].end, 2);
  EXPECT_DOUBLE_EQ(spans[1].end, 2);
}

TEST(Transfers, RunAtFullSpeedAgainWhenTheOtherHasEnded) {
  const auto spans = spans_of(2, {{0, 0, 3, kAcross, {0}}, {1, 1, 1, kAcross, {0}}});
  EXPECT_DOUBLE_EQ(spans[1].begin, 1);
  EXPECT_DOUBLE_EQ(spans[1].end, 3) << "from 1 on each has half of the link";
  EXPECT_DOUBLE_EQ(spans[0].end, 4);
}

TEST(Transfers, DoNotShareWhatTheyDoNotNeedTogether) {
  for (const auto& second : {TransferLanes::Transfer{1, 0, 1, kAcross, {1}}, TransferLanes::Transfer{1, 0, 1, kInside, {0}},
                             TransferLanes::Transfer{1, 0, 1, {}, {0}}}) {
    const auto spans = spans_of(2, {{0, 0, 1, kAcross, {0}}, second});
    EXPECT_DOUBLE_EQ(spans[0].end, 1);
    EXPECT_DOUBLE_EQ(spans[1].end, 1);
  }
  const auto spans = spans_of(2, {{0, 0, 1, kHalf, {0}}, {1, 0, 1, kHalf, {0}}});
  EXPECT_DOUBLE_EQ(spans[0].end, 1) << "two halves fit into one link";
}

TEST(Transfers, OfALaneRunInTheirOrder) {
  const auto spans = spans_of(1, {{0, 0, 1, kAcross, {0}}, {0, 0, 1, kAcross, {0}}, {0, 5, 0, {}, {0}}});
  EXPECT_DOUBLE_EQ(spans[0].end, 1);
  EXPECT_DOUBLE_EQ(spans[1].begin, 1);
  EXPECT_DOUBLE_EQ(spans[1].end, 2);
  EXPECT_DOUBLE_EQ(spans[2].begin, 5);
}

TEST(Transfers, ThatTakeNoTimeEndAtOnce) {
  TransferLanes transfers(1);
  bool is_done = false;
  transfers.add({0, 2, 0, kAcross, {0}}, [&](const PlaySpan& span) { is_done = span.begin == 2 && span.end == 2; });
  EXPECT_TRUE(is_done);
  EXPECT_FALSE(transfers.finish_next());
}

}  // namespace
}  // namespace zt::test
