#include "stream/phase.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/support/chat_files.h"
#include "stream/open.h"
#include "zt/base/error.h"

namespace zt::data {

using testing::HasSubstr;

TEST(Phase, EachRecordIsInExactlyOnePhase) {
  for (const auto& weights : {std::vector<double>{2, 4, 4}, {1}, {0, 1, 0}, {0.1, 0.7, 0.2}, {1, 1, 1, 1, 1, 1, 1}}) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const int64_t records : {1, 2, 3, 10, 999}) {
      for (const Split split : {Split::train, Split::validation}) {
        const std::vector<int64_t> expected = chosen_records(records, 0.3, split, {});
        std::vector<int64_t> all;
        for (int64_t index = 0; index < static_cast<int64_t>(weights.size()); ++index) {
          const auto chosen = chosen_records(records, 0.3, split, RecordPhase{weights, index});
          EXPECT_TRUE(std::ranges::is_sorted(chosen));
          const double share = weights[static_cast<size_t>(index)] / sum * static_cast<double>(expected.size());
          EXPECT_LT(std::abs(static_cast<double>(chosen.size()) - share), 1);
          all.insert(all.end(), chosen.begin(), chosen.end());
        }
        std::ranges::sort(all);
        EXPECT_EQ(all, expected);
      }
    }
  }
}

// Of 1000 records, the number of those in the first half that phase 0 has is hypergeometric with mean 250 and a standard
// deviation of 250 / sqrt(999) = 7.9. The permutation has a constant key, so this is one number.
TEST(Phase, IsARandomSubset) {
  const auto chosen = chosen_records(1000, 0, Split::train, RecordPhase{{1, 1}, 0});
  const auto low = std::ranges::count_if(chosen, [](int64_t record) { return record < 500; });
  EXPECT_NEAR(static_cast<double>(low), 250, 4 * 7.9);
}

TEST(Phase, StreamsReadTheirPhaseAndStatesKnowIt) {
  ChatFiles files;
  std::vector<TestDocument> documents;
  for (int32_t i = 0; i < 20; ++i) documents.push_back({{i, i + 1}, {0, 1}});
  files.put("conversations", documents);
  const auto phase_of = [](int64_t index) {
    Value::List weights;
    for (const int weight : {1, 3, 0}) weights.emplace_back(weight);
    return Value(Value::Table{{"weights", weights}, {"index", index}});
  };
  const Value::Table options{{"path", files.path}, {"seq", 1}, {"batch", 1}, {"validation", 0}};
  const auto documents_of = [&](int64_t index) {
    auto all = options;
    all["offsets"] = files.folder / "chat.offsets.npy";
    all["phase"] = phase_of(index);
    return open_documents(all);
  };
  const auto conversations_of = [&](int64_t index) {
    auto all = options;
    all["phase"] = phase_of(index);
    return open_conversations(all, World{});
  };
  std::vector<int64_t> seen;
  for (const auto& streams : {std::pair(documents_of(0), documents_of(1)), std::pair(conversations_of(0), conversations_of(1))}) {
    seen.clear();
    EXPECT_EQ(streams.first->source().samples(), 5);
    EXPECT_EQ(streams.second->source().samples(), 15);
    for (int64_t step = 0; step < 15; ++step) {
      if (step < 5) seen.push_back(streams.first->batch(step).at("tokens").item<int64_t>());
      seen.push_back(streams.second->batch(step).at("tokens").item<int64_t>());
    }
    std::ranges::sort(seen);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
    EXPECT_THAT(message_of<Misuse>([&] { streams.second->restore(streams.first->state(), Steps::Order::same); }),
                HasSubstr("phase = 'phase 0 of {1, 3, 0}' (this stream: 'phase 1 of {1, 3, 0}')"));
  }
  EXPECT_THAT(message_of<Misuse>([&] { conversations_of(2); }), HasSubstr("belongs to this split and this phase"));
  EXPECT_THAT(message_of<Misuse>([&] { documents_of(2); }), HasSubstr("no document of at least two tokens in this split"));
  EXPECT_THAT(message_of<Misuse>([&] { conversations_of(3); }), HasSubstr("phase.index must lie between 0 and 2"));
}

TEST(Phase, WeightsAreChecked) {
  const auto refused = [](const std::vector<double>& weights) { return message_of<Misuse>([&] { check_phase({weights, 0}); }); };
  EXPECT_THAT(refused({1, -1}), HasSubstr("numbers of at least 0, got -1"));
  EXPECT_THAT(refused({std::nan("")}), HasSubstr("numbers of at least 0"));
  EXPECT_THAT(refused({0, 0}), HasSubstr("must have a number above 0"));
  EXPECT_THAT(refused({}), HasSubstr("must have a number above 0"));
}

}  // namespace zt::data
