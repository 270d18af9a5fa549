#include "stream/blend.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <cmath>
#include <set>

#include "data/support/chat_files.h"
#include "stream/open.h"
#include "zt/base/error.h"
#include "zt/comm/mesh.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

std::shared_ptr<Axis> blend_axis(int size, int coordinate) {
  auto axis = std::make_shared<Axis>();
  axis->name = "dp", axis->size = size, axis->coordinate = coordinate;
  return axis;
}

// Three token files with other tokens: file i has the tokens from 10000 i on.
struct Sources {
  Folder folder;
  std::vector<std::string> paths;
  Sources() {
    for (const int32_t size : {200, 300, 77}) {
      std::vector<int32_t> tokens = counting(size);
      for (int32_t& token : tokens) token += 10000 * static_cast<int32_t>(paths.size());
      paths.push_back(folder.put_tokens(fmt::format("{}.npy", paths.size()), tokens));
    }
  }
  std::shared_ptr<Stream> stream(size_t i, const Value::Table& changes = {}) const {
    Value::Table options{{"path", paths[i]}, {"seq", 4}, {"batch", 6}, {"validation", 0}, {"vocab", 30000}, {"seed", 1}};
    for (const auto& [name, value] : changes) options[name] = value;
    return open_tokens(options);
  }
  std::vector<BlendEntry> entries(const Value::Table& changes = {}) const {
    return {{stream(0, changes), 3}, {stream(1, changes), 2}, {stream(2, changes), 1}};
  }
  std::shared_ptr<Stream> blend(int64_t batch, const Value::Table& changes = {}, int64_t seed = 0) const {
    return open_blend(entries(changes), Value::Table{{"batch", batch}, {"seed", seed}});
  }
};

}  // namespace

TEST(Blend, TakesTheSamplesOfEachStreamInTheirOrder) {
  const Sources sources;
  const auto blend = sources.blend(12);
  std::vector<int64_t> taken(3);
  const std::vector<double> weights{3, 2, 1};
  for (int64_t step = 0; step < 40; ++step) {
    const Fields fields = blend->batch(step);
    EXPECT_EQ(row(fields.at("sample"), 0).front(), step * 12);
    for (int64_t i = 0; i < 12; ++i) {
      const auto source = static_cast<size_t>(row(fields.at("tokens"), i)[0] / 10000);
      const auto single = sources.stream(source, {{"batch", 1}})->batch(taken[source]++);
      EXPECT_EQ(row(fields.at("tokens"), i), row(single.at("tokens"), 0));
      EXPECT_EQ(row(fields.at("labels"), i), row(single.at("labels"), 0));
      for (size_t s = 0; s < 3; ++s) {
        EXPECT_LT(std::abs(static_cast<double>(taken[s]) - weights[s] / 6 * static_cast<double>(step * 12 + i + 1)), 1);
      }
    }
  }
}

TEST(Blend, GlobalBatchesAreTheSameForEveryNumberOfRanks) {
  const Sources sources;
  const auto whole = sources.blend(12);
  for (const int ranks : {1, 2, 3}) {
    for (int64_t step = 0; step < 20; ++step) {
      std::vector<at::Tensor> tokens, numbers;
      for (int rank = 0; rank < ranks; ++rank) {
        const Fields fields = sources.blend(12, {{"axis", Object::of<Axis>(blend_axis(ranks, rank))}})->batch(step);
        tokens.push_back(fields.at("tokens"));
        numbers.push_back(fields.at("sample"));
      }
      EXPECT_TRUE(at::equal(at::cat(tokens), whole->batch(step).at("tokens"))) << ranks << " ranks";
      EXPECT_TRUE(at::equal(at::cat(numbers), whole->batch(step).at("sample")));
    }
  }
}

TEST(Blend, ResumesAlsoWithAnotherBatchSize) {
  const Sources sources;
  const auto old = sources.blend(4), single = sources.blend(1);
  old->seek(9);
  for (const int64_t batch : {4, 10}) {
    const auto resumed = sources.blend(batch);
    resumed->restore(old->state(), Steps::Order::same);
    for (int64_t step = 9; step < 20; ++step) {
      for (int64_t i = 0; i < batch; ++i) {
        EXPECT_EQ(row(resumed->batch(step).at("tokens"), i), row(single->batch(36 + (step - 9) * batch + i).at("tokens"), 0));
      }
    }
  }
  const auto refused = [&](const std::shared_ptr<Stream>& other) {
    return message_of<Misuse>([&] { other->restore(old->state(), Steps::Order::same); });
  };
  EXPECT_THAT(refused(sources.blend(4, {}, 5)), HasSubstr("seed = 0 (this stream: 5)"));
  EXPECT_THAT(refused(sources.blend(4, {{"seed", 2}})), HasSubstr("seed of stream 1 = 1 (this stream: 2)"));
  auto entries = sources.entries();
  entries[0].weight = 9;
  EXPECT_THAT(refused(open_blend(entries, Value::Table{{"batch", 4}})),
              HasSubstr("weight of stream 1 = 0.5 (this stream: 0.75)"));
  std::swap(entries[1], entries[2]);
  EXPECT_THAT(refused(open_blend(entries, Value::Table{{"batch", 4}})), HasSubstr("tokens of stream 2 = '300 numbers"));
}

TEST(Blend, EpochsAreThoseOfTheSlowestStream) {
  const Sources sources;
  const auto blend = sources.blend(1);
  EXPECT_EQ(blend->source().samples(), 49 + 74 + 18);  // shifted windows: (n - 4) / 4
  EXPECT_EQ(blend->epoch(0), 0);
  // Stream 2 has 74 samples and a third of the weight: it is through after 222 samples, within one sample of it. Stream 1 needs
  // 98 and stream 3 108 samples.
  EXPECT_EQ(blend->epoch(222 - 4), 0);
  EXPECT_EQ(blend->epoch(222 + 4), 1);
}

TEST(Blend, EntropyIsThatOfTheMixture) {
  const Folder folder;
  const auto open = [&](const char* name, int32_t first) {
    std::vector<int32_t> tokens(101, first);
    return open_tokens(
        Value::Table{{"path", folder.put_tokens(name, tokens)}, {"seq", 4}, {"batch", 1}, {"validation", 0}, {"vocab", 9}});
  };
  const auto blend = open_blend({{open("a.npy", 1), 3}, {open("b.npy", 2), 1}}, Value::Table{{"batch", 1}});
  EXPECT_NEAR(blend->source().entropy(), -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 1e-15);
}

// A blend is a stream: it can be part of another one.
TEST(Blend, OfBlends) {
  const Sources sources;
  const auto blend = open_blend({{sources.blend(2), 1}, {sources.stream(2), 1}}, Value::Table{{"batch", 5}});
  std::multiset<int64_t> from;
  for (int64_t i = 0; i < 5; ++i) from.insert(row(blend->batch(3).at("tokens"), i)[0] / 10000);
  EXPECT_GE(from.count(2), 2U);
  EXPECT_EQ(blend->batch(3).at("tokens").size(0), 5);
}

TEST(Blend, RefusesStreamsThatDoNotFit) {
  const Sources sources;
  const auto refused = [&](std::vector<BlendEntry> entries, const Value::Table& options = {{"batch", 6}}) {
    return message_of<Misuse>([&] { open_blend(entries, options); });
  };
  const auto with = [&](const Value::Table& changes) {
    return std::vector<BlendEntry>{{sources.stream(0), 1}, {sources.stream(1, changes), 1}};
  };
  EXPECT_THAT(refused(with({{"seq", 5}})),
              HasSubstr("the seq of stream 1 (data.tokens) is 4, and that of stream 2 (data.tokens) is 5"));
  EXPECT_THAT(refused(with({{"vocab", 30001}})), HasSubstr("the vocabulary of stream 1"));
  EXPECT_THAT(refused(with({{"axis", Object::of<Axis>(blend_axis(2, 0))}})), HasSubstr("give all streams the same axis"));
  EXPECT_THAT(refused(with({{"micro_batches", 2}})), HasSubstr("stream 1 has micro_batches = 1, and stream 2 has 2"));
  const auto documents = open_documents(Value::Table{
      {"path", sources.paths[1]}, {"seq", 4}, {"batch", 6}, {"vocab", 30000}, {"separator", 10050}, {"validation", 0}});
  EXPECT_THAT(refused({{sources.stream(0), 1}, {documents, 1}}),
              HasSubstr("the list of fields of stream 1 (data.tokens) is labels [4], tokens [4], and that of stream 2 "
                        "(data.documents) is labels [4], padding [4], tokens [4]"));
  for (const double weight : {0.0, -1.0, std::nan("")})
    EXPECT_THAT(refused({{sources.stream(0), weight}}), HasSubstr("the weight of stream 1 must be above 0"));
  EXPECT_THAT(refused({}), HasSubstr("data.blend has no streams"));
  EXPECT_THAT(refused(sources.entries(), {}), HasSubstr("option 'batch' is missing"));
  EXPECT_THAT(refused(sources.entries({{"axis", Object::of<Axis>(blend_axis(2, 0))}}), {{"batch", 5}}),
              HasSubstr("give a multiple of 2"));
}

}  // namespace zt::data
