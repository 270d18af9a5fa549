// Tests data.conversations and data.preferences: their fields equal those that are computed token by token.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>

#include "data/support/chat_files.h"
#include "stream/open.h"
#include "zt/base/error.h"
#include "zt/comm/mesh.h"

namespace zt::data {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kChatSeq = 24;

std::vector<TestDocument> random_documents(int32_t count, int32_t most, int32_t least = 0) {
  std::mt19937 random(7);
  std::vector<TestDocument> documents;
  for (int32_t i = 0; i < count; ++i)
    documents.push_back(numbered_document(i, least + static_cast<int32_t>(random() % (most - least + 1)), random));
  return documents;
}

// Prompts, and answers of at least `least` tokens, in turn. All tokens of answers have the mask 1, those of prompts 0.
std::vector<TestDocument> random_pairs(int32_t count, int32_t most, int32_t least = 1) {
  std::mt19937 random(9);
  std::vector<TestDocument> documents;
  for (int32_t i = 0; i < count; ++i) {
    documents.push_back(numbered_document(i, 2 + static_cast<int32_t>(random() % most), random));
    std::ranges::fill(documents.back().mask, 0);
    for (int side = 0; side < 2; ++side) {
      documents.push_back(numbered_document(i, least + static_cast<int32_t>(random() % most), random));
      std::ranges::fill(documents.back().mask, 1);
    }
  }
  return documents;
}

Value::Table options_of(const ChatFiles& files, const Value::Table& changes = {}) {
  Value::Table options{{"path", files.path}, {"seq", kChatSeq}, {"batch", 3}, {"validation", 0}, {"seed", 5}};
  for (const auto& [name, value] : changes) options[name] = value;
  return options;
}

using Open = std::shared_ptr<Stream> (*)(const Value&, const World&);

// Returns the rows of an epoch of a stream with batches of one row.
std::vector<Fields> epoch_of(Open open, Value::Table options, int64_t epoch = 0) {
  options["batch"] = 1;
  const auto stream = open(options, World{});
  std::vector<Fields> rows;
  const int64_t samples = stream->source().samples();
  for (int64_t step = epoch * samples; step < (epoch + 1) * samples; ++step) rows.push_back(stream->batch(step));
  return rows;
}

auto key_of(const TestSequence& sequence) {
  return std::tuple(sequence.tokens, sequence.labels, sequence.positions);
}
void sort(std::vector<TestSequence>& sequences) {
  std::ranges::sort(sequences, {}, key_of);
}

std::vector<TestSequence> all_sequences(const std::vector<Fields>& rows) {
  std::vector<TestSequence> all;
  for (const Fields& fields : rows) {
    for (TestSequence& sequence : sequences_in(fields, 0)) all.push_back(std::move(sequence));
  }
  sort(all);
  return all;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST(Conversations, EveryRecordComesOnceWithItsLabels) {
  ChatFiles files;
  const auto documents = random_documents(300, 40);
  files.put("conversations", documents);
  for (const bool cut : {false, true}) {
    std::vector<TestSequence> expected;
    int64_t too_long = 0, useless = 0;
    for (const TestDocument& document : documents) {
      if (!cut && document.tokens.size() > kChatSeq + 1) {
        ++too_long;
        continue;
      }
      expected.push_back(expected_sequence(document.tokens, document.mask, kChatSeq + 1));
      if (has_label(expected.back())) continue;
      expected.pop_back();
      ++useless;
    }
    sort(expected);
    for (const bool pack : {true, false}) {
      const auto options = options_of(files, {{"pack", pack}, {"too_long", cut ? "cut" : "drop"}});
      testing::internal::CaptureStderr();
      for (const int64_t epoch : {0, 2}) EXPECT_EQ(all_sequences(epoch_of(open_conversations, options, epoch)), expected);
      const std::string told = fmt::format("data.conversations leaves out {} of the 300 records", too_long + useless);
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(told));
      const int64_t rows = open_conversations(options, World{})->source().samples();
      if (!pack) {
        EXPECT_EQ(rows, static_cast<int64_t>(expected.size()));
      }
    }
  }
}

TEST(Conversations, PackingFillsRows) {
  ChatFiles files;
  const auto documents = random_documents(500, 16, 2);
  files.put("conversations", documents);
  const auto rows = epoch_of(open_conversations, options_of(files, {{"seq", 64}}));
  int64_t pads = 0;
  for (const Fields& fields : rows) pads += fields.at("padding").sum().item<int64_t>();
  EXPECT_LT(static_cast<double>(pads), 0.05 * 64 * static_cast<double>(rows.size())) << "first-fit leaves less than 1 in 20";
}

TEST(Conversations, PadsAtTheRightOrTheLeft) {
  ChatFiles files;
  files.put("conversations", {{{5, 6, 7}, {0, 0, 1}}, {{1, 2, 3, 4, 5}, {0, 1, 1, 0, 1}}});
  Value::Table options = options_of(files, {{"seq", 4}, {"pack", false}, {"shuffle", false}, {"batch", 2}, {"seed", Value()}});
  Fields fields = open_conversations(options, World{})->batch(0);
  EXPECT_THAT(row(fields.at("tokens"), 0), ElementsAre(5, 6, 0, 0));
  EXPECT_THAT(row(fields.at("labels"), 0), ElementsAre(-100, 7, -100, -100));
  EXPECT_THAT(row(fields.at("segments"), 0), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(row(fields.at("positions"), 0), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(row(fields.at("padding"), 0), ElementsAre(0, 0, 1, 1));
  options["padding"] = "left";
  options["ignore_index"] = -7;
  fields = open_conversations(options, World{})->batch(0);
  EXPECT_THAT(row(fields.at("tokens"), 0), ElementsAre(0, 0, 5, 6));
  EXPECT_THAT(row(fields.at("labels"), 0), ElementsAre(-7, -7, -7, 7));
  EXPECT_THAT(row(fields.at("segments"), 0), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(row(fields.at("positions"), 0), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(row(fields.at("padding"), 0), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(row(fields.at("labels"), 1), ElementsAre(2, 3, -7, 5));
  EXPECT_THAT(row(fields.at("segments"), 1), ElementsAre(0, 0, 0, 0)) << "a full row has no padding";
  options["pack"] = true;
  EXPECT_THAT(message_of<Misuse>([&] { open_conversations(options, World{}); }),
              HasSubstr("data.conversations.padding has an effect only with pack = false"));
}

TEST(Conversations, DocumentsOfTwoTokens) {
  ChatFiles files;
  std::vector<TestDocument> documents;
  for (int32_t i = 0; i < 9; ++i) documents.push_back({{i, i + 1}, {0, 1}});
  files.put("conversations", documents);
  const auto stream = open_conversations(options_of(files, {{"seq", 1}, {"batch", 9}}), World{});
  EXPECT_EQ(stream->source().samples(), 9);
  const Fields fields = stream->batch(3);
  EXPECT_TRUE(at::equal(fields.at("labels"), fields.at("tokens") + 1));
}

TEST(Conversations, RecordsThatAreTooLong) {
  ChatFiles files;
  std::mt19937 random(1);
  std::vector<TestDocument> documents;
  for (int32_t i = 0; i < 4; ++i) documents.push_back(numbered_document(i, 30 + i, random));
  files.put("conversations", documents);
  const auto message = [&](const char* too_long) {
    return message_of<Misuse>([&] { open_conversations(options_of(files, {{"too_long", too_long}}), World{}); });
  };
  EXPECT_THAT(message("error"), HasSubstr("record 0 of '" + files.path + "' has 30 tokens, and a row takes seq + 1 = 25"));
  EXPECT_THAT(message("drop"), HasSubstr("would leave out all records, 4 of the 4 records of"));
  EXPECT_THAT(message("drop"), HasSubstr("4 with more than seq + 1 = 25 tokens"));
  EXPECT_EQ(open_conversations(options_of(files, {{"seq", 29}}), World{})->source().samples(), 1);
}

TEST(Conversations, GlobalBatchesAreTheSameForEveryNumberOfRanks) {
  ChatFiles files;
  files.put("conversations", random_documents(40, 20, 2));
  const auto whole = open_conversations(options_of(files, {{"batch", 6}}), World{});
  for (const int ranks : {1, 2, 3}) {
    for (int64_t step = 0; step < 12; ++step) {
      std::map<std::string, std::vector<at::Tensor>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        auto axis = std::make_shared<Axis>();
        axis->name = "dp", axis->size = ranks, axis->coordinate = rank;
        const auto stream = open_conversations(options_of(files, {{"batch", 6}, {"axis", Object::of<Axis>(axis)}}), World{});
        for (const auto& [name, tensor] : stream->batch(step)) parts[name].push_back(tensor);
      }
      for (const auto& [name, tensor] : whole->batch(step)) EXPECT_TRUE(at::equal(at::cat(parts.at(name)), tensor)) << name;
    }
  }
}

TEST(Conversations, ResumesAlsoWithAnotherBatchSize) {
  ChatFiles files;
  files.put("conversations", random_documents(40, 20, 2));
  const auto first = open_conversations(options_of(files, {{"batch", 4}}), World{}),
             single = open_conversations(options_of(files, {{"batch", 1}}), World{});
  first->seek(7);
  for (const int64_t batch : {4, 6}) {
    const auto resumed = open_conversations(options_of(files, {{"batch", batch}}), World{});
    resumed->restore(first->state(), Steps::Order::same);
    for (int64_t step = 7; step < 20; ++step) {
      const Fields fields = resumed->batch(step);
      for (int64_t i = 0; i < batch; ++i) {
        const int64_t number = 28 + (step - 7) * batch + i;
        EXPECT_EQ(fields.at("sample")[i].item<int64_t>(), number);
        EXPECT_EQ(row(fields.at("labels"), i), row(single->batch(number).at("labels"), 0));
      }
    }
  }
  for (const Value::Table& changes : {Value::Table{{"too_long", "cut"}}, {{"pack", false}}, {{"seq", 30}}}) {
    const auto other = open_conversations(options_of(files, changes), World{});
    EXPECT_THAT(message_of<Misuse>([&] { other->restore(first->state(), Steps::Order::same); }),
                HasSubstr("is of a stream with"));
  }
}

TEST(Preferences, EveryPairComesOnceInOneRow) {
  ChatFiles files;
  const auto documents = random_pairs(200, 9);
  files.put("preferences", documents, 3);
  for (const bool pack : {true, false}) {
    std::map<std::vector<TestSequence>, int, bool (*)(const std::vector<TestSequence>&, const std::vector<TestSequence>&)>
        expected([](const auto& a, const auto& b) {
          return std::pair(key_of(a[0]), key_of(a[1])) < std::pair(key_of(b[0]), key_of(b[1]));
        });
    auto found = expected;
    for (size_t i = 0; i < documents.size(); i += 3) {
      std::vector<TestSequence> pair;
      for (size_t side = 1; side < 3; ++side) {
        pair.push_back(expected_sequence(joined(documents[i].tokens, documents[i + side].tokens),
                                         joined(documents[i].mask, documents[i + side].mask), 1000));
        pair.back().tokens.push_back(documents[i + side].tokens.back());  // at which a reward model scores
        pair.back().labels.push_back(-100);
        pair.back().positions.push_back(std::ssize(pair.back().positions));
      }
      if (pair[0].tokens.size() + pair[1].tokens.size() <= kChatSeq) ++expected[pair];
    }
    for (const Fields& fields : epoch_of(open_preferences, options_of(files, {{"pack", pack}}))) {
      const auto sequences = sequences_in(fields, 0);
      ASSERT_EQ(sequences.size() % 2, 0U);
      for (size_t i = 0; i < sequences.size(); i += 2) ++found[{sequences[i], sequences[i + 1]}];
      if (!pack) {
        EXPECT_EQ(sequences.size(), 2U);
      }
      const auto padding = row(fields.at("padding"), 0), segments = row(fields.at("segments"), 0);
      for (size_t t = 0; t < padding.size(); ++t) {
        EXPECT_EQ(row(fields.at("sequence"), 0)[t], padding[t] == 1 ? -1 : segments[t])
            << "two sequences per pair, in their order";
        EXPECT_EQ(row(fields.at("side"), 0)[t], padding[t] == 1 ? -1 : segments[t] % 2);
      }
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(Preferences, CutsTheLongerAnswerFirst) {
  ChatFiles files;
  // Prompt 10 11; answers of 5 and 2 tokens: 7 and 4 positions.
  files.put("preferences", {{{10, 11}, {0, 0}}, {{1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}}, {{6, 7}, {1, 1}}}, 3);
  const auto sequences = [&](int64_t seq) {
    const auto stream = open_preferences(options_of(files, {{"seq", seq}, {"too_long", "cut"}, {"batch", 1}}), World{});
    return sequences_in(stream->batch(0), 0);
  };
  const auto labels = [&](int64_t seq) { return std::pair(sequences(seq)[0].labels, sequences(seq)[1].labels); };
  using Labels = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
  EXPECT_EQ(labels(11), (Labels{{-100, 1, 2, 3, 4, 5, -100}, {-100, 6, 7, -100}}));
  EXPECT_EQ(labels(10), (Labels{{-100, 1, 2, 3, 4, -100}, {-100, 6, 7, -100}}));
  EXPECT_EQ(labels(8), (Labels{{-100, 1, 2, -100}, {-100, 6, 7, -100}}));
  EXPECT_EQ(labels(7), (Labels{{-100, 1, -100}, {-100, 6, -100}}));
  EXPECT_THAT(message_of<Misuse>([&] { sequences(5); }), HasSubstr("1 with an answer without a label"));
  EXPECT_THAT(
      message_of<Misuse>([&] {
        open_preferences(options_of(files, {{"seq", 10}, {"too_long", "error"}}), World{});
      }),
      HasSubstr("record 0 of '" + files.path + "' has 7 and 4 tokens with its two answers, and a row takes seq = 10 for both"));
}

TEST(Preferences, PadsAtTheLeft) {
  ChatFiles files;
  files.put("preferences", {{{10, 11}, {0, 0}}, {{1}, {1}}, {{6, 7}, {1, 1}}}, 3);
  const auto stream =
      open_preferences(options_of(files, {{"seq", 9}, {"pack", false}, {"padding", "left"}, {"batch", 1}}), World{});
  const Fields fields = stream->batch(0);
  EXPECT_THAT(row(fields.at("tokens"), 0), ElementsAre(0, 0, 10, 11, 1, 10, 11, 6, 7));
  EXPECT_THAT(row(fields.at("labels"), 0), ElementsAre(-100, -100, -100, 1, -100, -100, 6, 7, -100));
  EXPECT_THAT(row(fields.at("segments"), 0), ElementsAre(0, 0, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_THAT(row(fields.at("positions"), 0), ElementsAre(0, 1, 0, 1, 2, 0, 1, 2, 3));
  EXPECT_THAT(row(fields.at("sequence"), 0), ElementsAre(-1, -1, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(row(fields.at("side"), 0), ElementsAre(-1, -1, 0, 0, 0, 1, 1, 1, 1));
}

}  // namespace zt::data
