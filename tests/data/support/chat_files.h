// Writes the files that the streams over records read, as `ztoolkit tokenize --chat` does.
#pragma once

#include <random>

#include "data/support/folder.h"
#include "tokens/companion.h"

namespace zt::data {

// The tokens of a document, and the mask of each.
struct TestDocument {
  std::vector<int32_t> tokens, mask;
};

inline Companion bytes_companion() {
  Companion companion;
  companion.vocab = 256;
  companion.tokenizer = "bytes";
  companion.source = "chat.jsonl";
  companion.source_hash = "12ab";
  return companion;
}

struct ChatFiles {
  Folder folder;
  std::string path = folder / "chat.npy";
  Companion companion = bytes_companion();

  // Writes all files. `of_record`: documents per record.
  void put(const std::string& kind, const std::vector<TestDocument>& documents, int64_t of_record = 1) {
    std::vector<int32_t> tokens, mask, offsets{0};
    for (const TestDocument& document : documents) {
      tokens.insert(tokens.end(), document.tokens.begin(), document.tokens.end());
      mask.insert(mask.end(), document.mask.begin(), document.mask.end());
      offsets.push_back(static_cast<int32_t>(tokens.size()));
    }
    folder.put_tokens("chat.npy", tokens);
    folder.put_tokens("chat.mask.npy", mask, NpyType::u8);
    folder.put_tokens("chat.offsets.npy", offsets, NpyType::i64);
    companion.tokens = static_cast<int64_t>(tokens.size());
    companion.documents = {.kind = kind,
                           .mask_of = "completion",
                           .template_hash = {},
                           .records = std::ssize(documents) / of_record,
                           .stop_tokens = {0}};
    put_companion();
  }
  void put_companion() const { folder.put("chat.json", companion_text(companion)); }
};

// Returns a document of `size` tokens below 256 that begins with `number` in two tokens. Its mask is random after the first
// token.
inline TestDocument numbered_document(int32_t number, int32_t size, std::mt19937& random) {
  TestDocument document;
  for (int32_t i = 0; i < size; ++i) {
    document.tokens.push_back(i == 0 ? number / 256 : i == 1 ? number % 256 : static_cast<int32_t>(random() % 256));
    document.mask.push_back(i == 0 ? 0 : static_cast<int32_t>(random() % 2));
  }
  return document;
}

// What a row has of one sequence: the fields of its positions.
struct TestSequence {
  std::vector<int64_t> tokens, labels, positions;
  bool operator==(const TestSequence&) const = default;
};

// Returns what a row has to have of the tokens, of which labels count by the mask: computed token by token.
inline TestSequence expected_sequence(const std::vector<int32_t>& tokens, const std::vector<int32_t>& mask, size_t most_tokens) {
  TestSequence sequence;
  for (size_t i = 0; i + 1 < std::min(tokens.size(), most_tokens); ++i) {
    sequence.tokens.push_back(tokens[i]);
    sequence.labels.push_back(mask[i + 1] == 1 ? tokens[i + 1] : -100);
    sequence.positions.push_back(static_cast<int64_t>(i));
  }
  return sequence;
}

inline bool has_label(const TestSequence& sequence) {
  return std::ranges::any_of(sequence.labels, [](int64_t label) { return label != -100; });
}

// Returns the sequences of a row, by its segments. Checks the padding, and that segments ascend by 1 from 0.
inline std::vector<TestSequence> sequences_in(const Fields& fields, int64_t i) {
  const auto of = [&](const char* name) { return row(fields.at(name), i); };
  const auto tokens = of("tokens"), labels = of("labels"), segments = of("segments"), positions = of("positions"),
             padding = of("padding");
  std::vector<TestSequence> all;
  int64_t pads = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const bool begins = t == 0 || segments[t] != segments[t - 1];
    EXPECT_EQ(segments[t], t == 0 ? 0 : segments[t - 1] + (begins ? 1 : 0));
    EXPECT_EQ(positions[t], begins ? 0 : positions[t - 1] + 1);
    if (padding[t] == 1) {
      EXPECT_EQ(tokens[t], 0);
      EXPECT_EQ(labels[t], -100);
      EXPECT_TRUE(!begins || pads == 0) << "one segment of padding";
      ++pads;
      continue;
    }
    if (begins) all.emplace_back();
    all.back().tokens.push_back(tokens[t]);
    all.back().labels.push_back(labels[t]);
    all.back().positions.push_back(positions[t]);
  }
  return all;
}

}  // namespace zt::data
