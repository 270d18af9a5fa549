// Tests the index of models in several files.
#include "safetensors/safetensors_shards.h"

#include <random>

#include "safetensors/safetensors.h"
#include "safetensors_support.h"
#include "support/message.h"

namespace zt::ckpt::safetensors {
namespace {

const std::string kIndexPath = "folder/model.safetensors.index.json";

std::string index_refusal(const std::string& text) {
  const std::string said = test::message_of<Fault>([&] { parse_index(text, kIndexPath); });
  EXPECT_CONTAINS(said, kIndexPath);
  return said;
}

TEST(SafetensorsShards, AnIndexThatTransformersWrote) {
  const FileIndex index = parse_index(test::golden_text("gpt2_untied/model.safetensors.index.json"), kIndexPath);
  EXPECT_EQ(parse_index(make_index(index), kIndexPath), index);
  std::map<std::string, std::string> found;
  int64_t total = 0;
  for (size_t file = 0; file < 4; ++file) {
    const std::string name = file_name("model", file, 4), bytes = test::golden_text("gpt2_untied/" + name);
    for (const Tensor& tensor : parse_header(std::as_bytes(std::span(bytes)), std::ssize(bytes), name).tensors) {
      found[tensor.name] = name;
      total += tensor.end - tensor.begin;
    }
  }
  EXPECT_EQ(index.files, found);
  EXPECT_EQ(index.total_bytes, total);
}

TEST(SafetensorsShards, AnIndexNeedsNoTotal) {
  const std::map<std::string, std::string> files{{"w", "a.safetensors"}};
  EXPECT_EQ(parse_index(R"({"weight_map":{"w":"a.safetensors"}})", kIndexPath), (FileIndex{files, 0}));
  EXPECT_EQ(parse_index(R"({"metadata":{"by":"x"},"weight_map":{"w":"a.safetensors"}})", kIndexPath), (FileIndex{files, 0}));
}

TEST(SafetensorsShards, RefusesOtherIndices) {
  EXPECT_CONTAINS(index_refusal("{}"), "no \"weight_map\"");
  EXPECT_CONTAINS(index_refusal(""), "there is no '{'");
  EXPECT_CONTAINS(index_refusal(R"({"weight_map":{"w":"a.safetensors","w":"b.safetensors"}})"), "the key \"w\" twice");
  EXPECT_CONTAINS(index_refusal(R"({"weight_map":{"w":1}})"), "\"w\" in \"weight_map\" is no text");
  EXPECT_CONTAINS(index_refusal(R"({"weight_map":3})"), "\"weight_map\" is no JSON object");
  EXPECT_CONTAINS(index_refusal(R"({"metadata":3,"weight_map":{}})"), "\"metadata\" is no JSON object");
  for (const std::string total : {"-1", "1.5", "\"3\"", "18446744073709551615"}) {
    EXPECT_CONTAINS(index_refusal(R"({"metadata":{"total_size":)" + total + R"(},"weight_map":{}})"),
                    "\"total_size\" is no number of bytes");
  }
  for (const std::string file :
       {"../a.safetensors", "/etc/a.safetensors", "b/a.safetensors", "..", "", ".safetensors", "a.bin", "a\\u0000.safetensors"}) {
    EXPECT_CONTAINS(index_refusal(R"({"weight_map":{"w":")" + file + "\"}}"), "no safetensors file beside it");
  }
}

TEST(SafetensorsShards, NamesOfFiles) {
  EXPECT_EQ(file_name("model", 0, 1), "model.safetensors");
  EXPECT_EQ(file_name("model", 0, 3), "model-00001-of-00003.safetensors");
  EXPECT_EQ(file_name("model", 2, 123456), "model-00003-of-123456.safetensors");
}

TEST(SafetensorsShards, SplitExamples) {
  using Files = std::vector<std::vector<size_t>>;
  const auto files = [](std::vector<int64_t> bytes, int64_t most) { return split(bytes, most); };
  EXPECT_EQ(files({}, 10), Files{});
  EXPECT_EQ(files({3, 3, 4, 1}, 10), (Files{{0, 1, 2}, {3}}));
  EXPECT_EQ(files({3, 3, 5, 1}, 10), (Files{{0, 1}, {2, 3}}));
  EXPECT_EQ(files({30, 3, 30, 30, 0}, 10), (Files{{0}, {1}, {2}, {3, 4}}));
  EXPECT_EQ(files({0, 0, 1}, 1), (Files{{0, 1, 2}}));
  EXPECT_EQ(files({INT64_MAX, 1, INT64_MAX}, INT64_MAX), (Files{{0}, {1}, {2}}));
  EXPECT_SAYS("give a size above 0", files({1}, 0));
}

TEST(SafetensorsShards, SplitKeepsAllInOrderWithinTheLimit) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> bytes(random() % 40);
    for (int64_t& size : bytes) size = random() % 30;
    const int64_t most = 1 + random() % 40;
    size_t next = 0;
    int64_t before = most + 1;  // bytes of the previous file: with the next tensor it would have exceeded `most`
    for (const auto& file : split(bytes, most)) {
      int64_t sum = 0;
      ASSERT_FALSE(file.empty());
      ASSERT_GT(before + bytes[file[0]], most);
      for (const size_t place : file) {
        ASSERT_EQ(place, next++);
        sum += bytes[place];
      }
      ASSERT_TRUE(sum <= most || bytes[file[0]] > most);
      before = sum;
    }
    ASSERT_EQ(next, bytes.size());
  }
}

}  // namespace
}  // namespace zt::ckpt::safetensors
