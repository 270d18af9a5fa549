#include "sample/shared_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "zt/base/box.h"

namespace zt::infer {
namespace {

// A row, and what is asked of it.
struct AskedRow {
  std::vector<double> logits;
  SamplingOptions options;
  TokenCounts counts;
  std::vector<int32_t> forbidden;
  double uniform = 0;
  bool is_drawn = true;
};

// Calls body(rank, share) on threads that share a vocabulary.
template <class Body>
void on_ranks(int ranks, int64_t vocabulary, const Body& body) {
  std::vector<at::Tensor> given(static_cast<size_t>(ranks));
  std::barrier meet(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto gather = [&](const at::Tensor& mine) {
        given[static_cast<size_t>(rank)] = mine;
        meet.arrive_and_wait();
        at::Tensor all = at::stack(given);
        meet.arrive_and_wait();
        return all;
      };
      const Share own = share_of(vocabulary, ranks, rank);
      body(rank, TokenShare{own.begin, own.count, vocabulary, rank, "tp", gather});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<RowTask> tasks_of(const std::vector<AskedRow>& rows, const TokenShare& share) {
  std::vector<RowTask> tasks;
  for (const AskedRow& row : rows) {
    RowTask& task = tasks.emplace_back();
    task.logits = std::span(row.logits).subspan(static_cast<size_t>(share.first), static_cast<size_t>(share.count));
    task.known = 3;
    if (!row.is_drawn) continue;
    task.options = &row.options;
    task.counts = &row.counts;
    task.forbidden = row.forbidden;
    task.uniform = row.uniform;
    task.top = 5;
  }
  return tasks;
}

AskedRow random_row(std::mt19937_64& random, int64_t vocabulary) {
  const auto between = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  const auto one_of = [&](std::initializer_list<double> values) {
    return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random)];
  };
  AskedRow row;
  const double spread = one_of({0.01, 1, 4, 20});
  for (int64_t i = 0; i < vocabulary; ++i) row.logits.push_back(std::normal_distribution<>(0, spread)(random));
  for (int i = 0; i < 3; ++i) row.logits[random() % row.logits.size()] = one_of({kNeverDrawn, 0, spread});
  row.options = {.repetition_penalty = one_of({1, 1, 1.3}),
                 .presence_penalty = one_of({0, 0.5}),
                 .frequency_penalty = one_of({0, 0.2}),
                 .temperature = one_of({0, 0.7, 1, 2}),
                 .top_k = static_cast<int64_t>(one_of({0, 0, 1, 5, 40, 1000})),
                 .top_p = one_of({1, 1, 0.3, 0.9, 0.999}),
                 .min_p = one_of({0, 0, 0.05, 0.5})};
  row.options.logit_bias[static_cast<int32_t>(random() % row.logits.size())] = 2;
  row.counts.add_prompt(std::vector<int32_t>{0, 1, 2, static_cast<int32_t>(random() % row.logits.size())});
  row.counts.add_answer(static_cast<int32_t>(random() % row.logits.size()));
  row.forbidden = {static_cast<int32_t>(random() % row.logits.size())};
  row.logits[static_cast<size_t>(row.forbidden[0] + 1) % row.logits.size()] = 0;  // at least one can be drawn
  row.uniform = between(0, 1);
  row.is_drawn = random() % 8 != 0;
  return row;
}

void expect_near(double found, double expected) {
  if (std::isinf(expected)) EXPECT_EQ(found, expected);
  else EXPECT_NEAR(found, expected, 1e-11);
}

void expect_as_one_rank(const AskedRow& row, const RowResult& result) {
  ASSERT_TRUE(result.can_sample);
  const double whole = log_sum_exp(row.logits);
  expect_near(result.known, row.logits[3] - whole);
  if (!row.is_drawn) return;
  Sampler sampler;
  const SampledToken expected = sampler.sample(row.logits, row.options, row.counts, row.forbidden, row.uniform);
  ASSERT_EQ(result.sampled.token, expected.token);
  expect_near(result.sampled.sampled_logprob, expected.sampled_logprob);
  expect_near(result.logprob, row.logits[static_cast<size_t>(expected.token)] - whole);
  const std::vector<int32_t> top = likeliest(row.logits, 5);
  ASSERT_EQ(result.top.size(), top.size());
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(result.top[i].first, top[i]);
    expect_near(result.top[i].second, row.logits[static_cast<size_t>(top[i])] - whole);
  }
}

TEST(SharedRows, AreDrawnAsByOneRank) {
  std::mt19937_64 random(1);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t vocabulary : {ranks, 7, 101, 2000}) {
      if (vocabulary < 4) continue;
      std::vector<AskedRow> rows;
      for (int i = 0; i < 300; ++i) rows.push_back(random_row(random, vocabulary));
      std::vector<std::vector<RowResult>> results(static_cast<size_t>(ranks));
      on_ranks(ranks, vocabulary, [&](int rank, const TokenShare& share) {
        results[static_cast<size_t>(rank)] = draw_shared(tasks_of(rows, share), share);
      });
      for (size_t row = 0; row < rows.size(); ++row) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, vocabulary " << vocabulary << ", row " << row);
        for (const auto& of_rank : results) {
          expect_as_one_rank(rows[row], of_rank[row]);
          EXPECT_EQ(of_rank[row].sampled.sampled_logprob, results[0][row].sampled.sampled_logprob);
        }
      }
    }
  }
}

TEST(SharedRows, DependOnNoOtherRow) {
  std::mt19937_64 random(2);
  std::vector<AskedRow> rows;
  for (int i = 0; i < 20; ++i) rows.push_back(random_row(random, 50));
  on_ranks(2, 50, [&](int, const TokenShare& share) {
    const std::vector<RowResult> together = draw_shared(tasks_of(rows, share), share);
    for (size_t row = 0; row < rows.size(); ++row) {
      const RowResult alone = draw_shared(tasks_of({rows[row]}, share), share)[0];
      EXPECT_EQ(alone.sampled.token, together[row].sampled.token);
      EXPECT_EQ(alone.sampled.sampled_logprob, together[row].sampled.sampled_logprob);
      EXPECT_EQ(alone.logprob, together[row].logprob);
      EXPECT_EQ(alone.top, together[row].top);
    }
  });
}

TEST(SharedRows, OfWhichOneRankHasNothingToDraw) {
  AskedRow row{.logits = {1, 2, kNeverDrawn, kNeverDrawn}, .options = {}, .counts = {}, .forbidden = {1}, .uniform = 0.999};
  AskedRow wrong = row, none = row;
  wrong.logits[2] = std::nan("");
  none.logits = std::vector<double>(4, kNeverDrawn);
  on_ranks(2, 4, [&](int, const TokenShare& share) {
    const std::vector<RowResult> results = draw_shared(tasks_of({wrong, row, none}, share), share);
    EXPECT_FALSE(results[0].can_sample);
    ASSERT_TRUE(results[1].can_sample);
    EXPECT_EQ(results[1].sampled.token, 0);
    EXPECT_FALSE(results[2].can_sample);
  });
}

// With cut-offs, no more travels than tokens that may remain, and a few.
TEST(SharedRows, SendCandidatesOnly) {
  AskedRow row{.logits = {}, .options = {.top_p = 0.9}, .counts = {}, .forbidden = {}, .uniform = 0.5};
  for (int i = 0; i < 10000; ++i) row.logits.push_back(i % 1000 == 7 ? 10 : 0);
  on_ranks(2, 10000, [&](int, const TokenShare& share) {
    int64_t sent = 0;
    TokenShare watched = share;
    watched.gather = [&](const at::Tensor& mine) {
      sent += mine.numel();
      return share.gather(mine);
    };
    draw_shared(tasks_of({row}, watched), watched);
    EXPECT_LT(sent, 200);
  });
}

}  // namespace
}  // namespace zt::infer
