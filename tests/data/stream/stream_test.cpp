#include "stream/stream.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <map>
#include <set>

#include "data/support/folder.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

// A source whose samples hold their own number: tokens[row] = {epoch, sample}.
class NumberSource : public SampleSource {
 public:
  explicit NumberSource(int64_t samples) : samples_(samples), file_(folder_.put_tokens("a.npy", {0})) {}
  int64_t samples() const override { return samples_; }
  int64_t seq() const override { return 2; }
  Fields make(std::span<const Place> rows, int64_t) const override {
    at::Tensor tokens = at::empty({static_cast<int64_t>(rows.size()), 2}, at::kLong);
    for (size_t i = 0; i < rows.size(); ++i) {
      tokens[static_cast<int64_t>(i)][0] = rows[i].epoch;
      tokens[static_cast<int64_t>(i)][1] = rows[i].sample;
    }
    return {{"tokens", tokens}};
  }
  const TokenFile& file() const override { return file_; }
  void add_counts(std::span<int64_t>) const override {}

 private:
  int64_t samples_;
  Folder folder_;
  TokenFile file_;
};

Stream make(int64_t samples, StreamOptions options) {
  return Stream("data.test", std::make_unique<NumberSource>(samples), std::move(options));
}

std::vector<int64_t> samples_of(const Stream& stream, int64_t step) {
  return row(stream.batch(step).at("tokens").t().contiguous(), 1);
}

class Recorder : public Visitor {
 public:
  bool is_load() const override { return loads; }
  std::map<std::string, Value> values;
  bool loads = false;
  void tensor(const std::string&, const std::vector<int64_t>&, Piece) override { FAIL() << "a stream has no tensors"; }
  void end_of_tensors() override {}
  void value(const std::string& name, Value& value) override {
    if (loads) value = values.at(name);
    else values[name] = value;
  }
};

}  // namespace

TEST(Stream, RanksShareTheSameGlobalBatch) {
  const int64_t samples = 31, batch = 12;
  const Stream whole = make(samples, {.batch = batch, .seed = 5});
  for (const int ranks : {1, 2, 3, 4, 12}) {
    for (int64_t step = 0; step < 9; ++step) {  // several epochs; only the first begins with a step
      std::vector<at::Tensor> tokens, numbers;
      for (int rank = 0; rank < ranks; ++rank) {
        const Fields part = make(samples, {.batch = batch, .rank = rank, .ranks = ranks, .seed = 5}).batch(step);
        EXPECT_EQ(part.at("tokens").size(0), batch / ranks);
        tokens.push_back(part.at("tokens"));
        numbers.push_back(part.at("sample"));
      }
      EXPECT_TRUE(at::equal(at::cat(tokens), whole.batch(step).at("tokens"))) << ranks << " ranks, step " << step;
      EXPECT_TRUE(at::equal(at::cat(numbers), at::arange(step * batch, (step + 1) * batch)));
    }
  }
}

TEST(Stream, EveryEpochHasEverySampleOnce) {
  for (const int64_t samples : {1, 2, 7, 64, 100}) {
    for (const int64_t batch : {1, 3, 8, 250}) {
      const Stream stream = make(samples, {.batch = batch, .seed = 1});
      std::map<int64_t, std::multiset<int64_t>> seen;
      for (int64_t step = 0; step * batch < 3 * samples; ++step) {
        const at::Tensor tokens = stream.batch(step).at("tokens");
        for (int64_t i = 0; i < batch; ++i) seen[tokens[i][0].item<int64_t>()].insert(tokens[i][1].item<int64_t>());
      }
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::multiset<int64_t> expected;
        for (int64_t i = 0; i < samples; ++i) expected.insert(i);
        EXPECT_EQ(seen[epoch], expected) << samples << " samples, batch " << batch << ", epoch " << epoch;
      }
    }
  }
}

TEST(Stream, OrderDependsOnSeedAndEpoch) {
  const Stream a = make(100, {.batch = 100, .seed = 1}), b = make(100, {.batch = 100, .seed = 2});
  EXPECT_EQ(samples_of(a, 0), samples_of(make(100, {.batch = 100, .seed = 1}), 0));
  EXPECT_NE(samples_of(a, 0), samples_of(b, 0));
  EXPECT_NE(samples_of(a, 0), samples_of(a, 1));
}

TEST(Stream, KeepsTheOrderWithoutShuffle) {
  const Stream stream = make(5, {.batch = 3, .shuffle = false});
  EXPECT_EQ(samples_of(stream, 0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(samples_of(stream, 1), (std::vector<int64_t>{3, 4, 0}));
}

TEST(Stream, CountsEpochs) {
  const Stream stream = make(10, {.batch = 4});
  EXPECT_EQ(stream.epoch(0), 0);
  EXPECT_EQ(stream.epoch(2), 0);  // starts with sample 8
  EXPECT_EQ(stream.epoch(3), 1);
  EXPECT_THAT(message_of<Misuse>([&] { stream.epoch(-1); }), HasSubstr("step must lie between 0"));
}

TEST(Stream, ResumeEqualsUninterrupted) {
  Stream first = make(50, {.batch = 8, .seed = 9});
  for (int i = 0; i < 7; ++i) first.seek(first.step() + 1);
  Recorder saved;
  first.visit(saved);
  EXPECT_EQ(saved.values.size(), 1U);

  Stream second = make(50, {.batch = 8, .seed = 9});
  saved.loads = true;
  second.visit(saved);
  EXPECT_EQ(second.step(), 7);
  for (int64_t step = 0; step < 20; ++step) EXPECT_EQ(samples_of(first, step), samples_of(second, step));
}

TEST(Stream, AnotherBatchSizeContinuesWithTheNextSample) {
  const Stream whole = make(50, {.batch = 1, .seed = 9});
  Stream old = make(50, {.batch = 4, .seed = 9});
  old.seek(20);
  for (const int ranks : {1, 2, 4}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const StreamOptions options{.batch = 8, .rank = rank, .ranks = ranks, .seed = 9};
      Stream larger = make(50, options);
      larger.restore(old.state(), Stream::Order::same);
      EXPECT_EQ(larger.step(), 20);
      for (int64_t step = 20; step < 40; ++step) {
        const int64_t rows = 8 / ranks, begin = 80 + (step - 20) * 8 + rank * rows;
        EXPECT_TRUE(at::equal(larger.batch(step).at("sample"), at::arange(begin, begin + rows)));
        for (int64_t i = 0; i < rows; ++i) {
          EXPECT_EQ(samples_of(larger, step)[static_cast<size_t>(i)], samples_of(whole, begin + i)[0]);
        }
      }
      EXPECT_EQ(larger.epoch(20), 1);  // samples 80 to 87
      EXPECT_EQ(larger.epoch(23), 2);  // from sample 104 on
      EXPECT_THAT(
          message_of<Misuse>([&] { larger.batch(19); }),
          HasSubstr("step 19 had another batch size: this stream continues from a saved state at step 20 with batch = 8"));
      larger.seek(25);  // 40 samples further: 120
      Stream same = make(50, options), smaller = make(50, {.batch = 2, .seed = 9});
      same.restore(larger.state(), Stream::Order::same);
      for (int64_t step = 20; step < 40; ++step) EXPECT_EQ(samples_of(same, step), samples_of(larger, step));
      smaller.restore(larger.state(), Stream::Order::same);
      EXPECT_TRUE(at::equal(smaller.batch(25).at("sample"), at::arange(120, 122)));
    }
  }
}

TEST(Stream, RefusesABadState) {
  Stream stream = make(5, {.batch = 1, .seed = 4});
  const auto refused = [&](const Value& state) {
    return message_of<Misuse>([&] { stream.restore(state, Stream::Order::same); });
  };
  EXPECT_THAT(refused(Value::Table{{"samples", 1}}), HasSubstr("'step' is missing"));
  EXPECT_THAT(refused(Value::Table{{"step", -3}}), HasSubstr("must lie between 0"));
  EXPECT_THAT(refused(Value::Table{{"step", 3}}), HasSubstr("unknown options (an earlier version saved it)"));
  EXPECT_THAT(refused(make(5, {.batch = 1, .seed = 1}).state()), HasSubstr("a stream with seed = 1 (this stream: 4)."));
  EXPECT_THAT(message_of<Misuse>([&] { stream.seek(-1); }), HasSubstr("step must lie between"));
  EXPECT_EQ(stream.seed(), 4) << "a refused state changes nothing";
  EXPECT_EQ(stream.step(), 0);
}

TEST(Stream, AnotherOrderIsTakenWhereItIsAllowed) {
  Stream old = make(50, {.batch = 8, .seed = 1});
  old.seek(5);
  Stream called = make(50, {.batch = 4, .seed = 2});
  called.restore(old.state(), Stream::Order::any);
  EXPECT_EQ(called.seed(), 2);
  EXPECT_TRUE(at::equal(called.batch(5).at("sample"), at::arange(40, 44)));

  Recorder saved;
  old.visit(saved);
  saved.loads = true;
  Stream loaded = make(50, {.batch = 8, .seed = 2, .takes_other_order = true});
  loaded.visit(saved);
  EXPECT_EQ(loaded.step(), 5);
  EXPECT_EQ(samples_of(loaded, 5), samples_of(make(50, {.batch = 8, .seed = 2}), 5));
}

TEST(Stream, WithoutShuffleAnotherSeedIsTheSameOrder) {
  Stream stream = make(5, {.batch = 1, .seed = 4, .shuffle = false});
  stream.restore(make(5, {.batch = 1, .seed = 1, .shuffle = false}).state(), Stream::Order::same);
  EXPECT_THAT(message_of<Misuse>([&] { stream.restore(make(5, {.batch = 1, .seed = 4}).state(), Stream::Order::same); }),
              HasSubstr("seed = 4 (this stream: absent), shuffle = true (this stream: false)"));
}

TEST(Stream, SaysWhyABatchDoesNotDivide) {
  EXPECT_THAT(message_of<Misuse>([] { make(5, {.batch = 16, .rank = 0, .ranks = 3}); }),
              HasSubstr("16 samples cannot be shared equally by the 3 ranks of its axis (16 = 3 * 5 + 1): give a multiple of 3"));
  EXPECT_THAT(message_of<Misuse>([] { make(5, {.batch = 2, .rank = 0, .ranks = 3}); }), HasSubstr("(2 = 3 * 0 + 2)"));
  EXPECT_THAT(
      message_of<Misuse>([] { make(5, {.batch = 12, .rank = 0, .ranks = 3, .micro_batches = 3}); }),
      HasSubstr("the 4 samples of a rank (batch = 12 / 3 ranks) cannot be split into 3 equal micro-batches (remainder 1)"));
}

}  // namespace zt::data
