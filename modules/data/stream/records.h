// What rows are made of: records, each of one or two sequences of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tokens/documents.h"
#include "tokens/mask_file.h"
#include "tokens/token_file.h"

namespace zt::data {

// A position has a token and its label, the next token. A sequence of n tokens has n - 1 positions, or where records have two
// sequences n: the last one, which has no label, is that at which a reward model scores. Threads: any.
class Records {
 public:
  virtual ~Records();
  virtual int64_t count() const = 0;
  virtual int sides() const = 0;  // sequences per record
  // Returns the positions of one sequence of a record, at least 0.
  virtual int64_t positions(int64_t record, int side) const = 0;
  // Reads the positions of the sequence. Labels that do not count are `ignore_index`.
  virtual void read(int64_t record, int side, int64_t ignore_index, std::span<int64_t> tokens,
                    std::span<int64_t> labels) const = 0;
  virtual const TokenFile& file() const = 0;
  // Adds to counts[id] how often the id occurs in the records. What both sequences of a record share counts once.
  virtual void add_counts(std::span<int64_t> counts) const = 0;
};

// Documents of a text: every token counts. A document of more than seq + 1 tokens is truncated. Memory: 16 bytes per document.
class TextRecords : public Records {
 public:
  // Throws Misuse if there is no document.
  TextRecords(std::shared_ptr<const TokenFile> file, std::vector<Document> documents, int64_t seq);
  int64_t count() const override { return static_cast<int64_t>(documents_.size()); }
  int sides() const override { return 1; }
  int64_t positions(int64_t record, int side) const override;
  void read(int64_t record, int side, int64_t ignore_index, std::span<int64_t> tokens, std::span<int64_t> labels) const override;
  const TokenFile& file() const override { return *file_; }
  void add_counts(std::span<int64_t> counts) const override;

 private:
  std::shared_ptr<const TokenFile> file_;
  std::vector<Document> documents_;
  int64_t seq_;
};

// A record of a conversation, or a pair of answers to one prompt. Each sequence is `head` and then `tails[side]`: a conversation
// has no head, and the head of a pair is its prompt.
struct ChatRecord {
  Document head = {};
  Document tails[2] = {};
};

// Tokens with a mask: a label counts where the mask of its token is 1. Memory: 48 bytes per record.
class ChatRecords : public Records {
 public:
  // Requires files of equal length. `sides`: 1 or 2.
  ChatRecords(std::shared_ptr<const TokenFile> file, std::shared_ptr<const MaskFile> mask, std::vector<ChatRecord> records,
              int sides);
  int64_t count() const override { return static_cast<int64_t>(records_.size()); }
  int sides() const override { return sides_; }
  int64_t positions(int64_t record, int side) const override;
  void read(int64_t record, int side, int64_t ignore_index, std::span<int64_t> tokens, std::span<int64_t> labels) const override;
  const TokenFile& file() const override { return *file_; }
  void add_counts(std::span<int64_t> counts) const override;

 private:
  std::shared_ptr<const TokenFile> file_;
  std::shared_ptr<const MaskFile> mask_;
  std::vector<ChatRecord> records_;
  int sides_;
};

}  // namespace zt::data
