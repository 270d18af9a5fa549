#include "stream/prompt_stream.h"

#include <ATen/ops/equal.h>

#include <set>

#include "data/support/chat_files.h"
#include "stream/open.h"
#include "zt/base/error.h"
#include "zt/comm/mesh.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

// Prompt i has the tokens i, i + 1, ... of 1 + i % 4 tokens, and the item {"number": i}.
struct Prompts : ChatFiles {
  explicit Prompts(int32_t count) {
    std::vector<TestDocument> documents;
    std::string items;
    for (int32_t i = 0; i < count; ++i) {
      TestDocument document;
      for (int32_t t = 0; t <= i % 4; ++t) document.tokens.push_back(i + t), document.mask.push_back(0);
      documents.push_back(document);
      items += fmt::format("{{\"number\": {}, \"text\": \"a\\nb\"}}\n", i);
    }
    put("prompts", documents);
    folder.put("chat.items.jsonl", items);
  }
  Value::Table options(const Value::Table& changes = {}) const {
    Value::Table all{{"path", path}, {"batch", 1}, {"validation", 0}, {"seed", 3}};
    for (const auto& [name, value] : changes) all[name] = value;
    return all;
  }
  std::shared_ptr<PromptStream> open(const Value::Table& changes = {}) const { return open_prompts(options(changes), World{}); }
};

std::vector<int64_t> tokens_of(const at::Tensor& prompt) {
  return {prompt.data_ptr<int64_t>(), prompt.data_ptr<int64_t>() + prompt.numel()};
}

int64_t number_of(const Value& item) {
  return *item.get_if<Value::Table>()->at("number").get_if<int64_t>();
}

std::vector<int64_t> expected_prompt(int64_t number) {
  std::vector<int64_t> tokens;
  for (int64_t t = 0; t <= number % 4; ++t) tokens.push_back(number + t);
  return tokens;
}

}  // namespace

TEST(PromptStream, EveryPromptComesOncePerEpochWithItsItem) {
  const Prompts files(30);
  const auto stream = files.open();
  EXPECT_EQ(stream->samples(), 30);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t step = 30 * epoch; step < 30 * (epoch + 1); ++step) {
      EXPECT_EQ(stream->epoch(step), epoch);
      const PromptBatch batch = stream->batch(step);
      ASSERT_EQ(batch.prompts.size(), 1U);
      const int64_t number = number_of(batch.items[0]);
      EXPECT_EQ(tokens_of(batch.prompts[0]), expected_prompt(number));
      EXPECT_EQ(batch.sample.item<int64_t>(), step);
      seen.insert(number);
    }
    EXPECT_EQ(seen.size(), 30U);
  }
}

TEST(PromptStream, RanksAndResume) {
  const Prompts files(30);
  const auto single = files.open(), old = files.open({{"batch", 6}});
  old->seek(4);
  for (const int ranks : {1, 2, 3}) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto axis = std::make_shared<Axis>();
      axis->name = "dp", axis->size = ranks, axis->coordinate = rank;
      const auto part = files.open({{"batch", 12}, {"axis", Object::of<Axis>(axis)}});
      part->restore(old->state(), Steps::Order::same);
      for (int64_t step = 4; step < 9; ++step) {
        const PromptBatch batch = part->batch(step);
        const int64_t rows = 12 / ranks;
        ASSERT_EQ(static_cast<int64_t>(batch.prompts.size()), rows);
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t number = 24 + (step - 4) * 12 + rank * rows + i;
          EXPECT_EQ(batch.sample[i].item<int64_t>(), number);
          EXPECT_EQ(tokens_of(batch.prompts[static_cast<size_t>(i)]), tokens_of(single->batch(number).prompts[0]));
        }
      }
    }
  }
}

TEST(PromptStream, LongPromptsAreLeftOutOrKeepTheirEnd) {
  const Prompts files(8);
  testing::internal::CaptureStderr();
  EXPECT_EQ(files.open({{"max_prompt_tokens", 2}})->samples(), 4);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("data.prompts leaves out 4 of the 8 records of '" + files.path +
                        "' in this split: 4 with more than max_prompt_tokens = 2 tokens"));
  const auto cut = files.open({{"max_prompt_tokens", 2}, {"too_long", "cut"}});
  EXPECT_EQ(cut->samples(), 8);
  for (int64_t step = 0; step < 8; ++step) {
    const PromptBatch batch = cut->batch(step);
    std::vector<int64_t> expected = expected_prompt(number_of(batch.items[0]));
    if (expected.size() > 2) expected.erase(expected.begin(), expected.end() - 2);
    EXPECT_EQ(tokens_of(batch.prompts[0]), expected);
  }
  EXPECT_THAT(message_of<Misuse>([&] {
                files.open({{"max_prompt_tokens", 3}, {"too_long", "error"}});
              }),
              HasSubstr("record 3 of '" + files.path + "' has 4 tokens, and max_prompt_tokens is 3"));
  EXPECT_THAT(message_of<Misuse>([&] { files.open({{"too_long", "cut"}}); }), HasSubstr("only with max_prompt_tokens"));
  EXPECT_THAT(message_of<Misuse>([&] { cut->restore(files.open()->state(), Steps::Order::same); }),
              HasSubstr("max_prompt_tokens = absent (this stream: 2)"));
}

TEST(PromptStream, DamagedItems) {
  const Prompts files(3);
  const std::string items = files.folder / "chat.items.jsonl";
  files.folder.put("chat.items.jsonl", "{}\n{}\n");
  EXPECT_THAT(message_of<Fault>([&] { files.open(); }),
              HasSubstr(items + "' has 2 lines, and '" + files.path + "' has 3 records"));
  files.folder.put("chat.items.jsonl", "{}\n{\n{}");
  const auto stream = files.open({{"shuffle", false}, {"seed", Value()}});
  EXPECT_NO_THROW(stream->batch(0));
  EXPECT_THAT(message_of<Fault>([&] { stream->batch(1); }), HasSubstr("line 2 of '" + items + "' is not JSON"));
  EXPECT_NO_THROW(stream->batch(2));
  std::filesystem::remove(items);
  EXPECT_THAT(message_of<Fault>([&] { files.open(); }), HasSubstr(items));
}

}  // namespace zt::data
