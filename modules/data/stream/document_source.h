// Samples of variable length: one document per row, or several packed into a row.
#pragma once

#include "stream.h"

namespace zt::data {

// A document: tokens [begin, begin + size) of the file. Each of its tokens 1 .. size-1 is predicted from the tokens before it.
struct Document {
  int64_t begin = 0, size = 0;
};

// Returns the documents that end with a `separator`. The separator belongs to its document, so that a model learns to end.
// Tokens after the last separator are a document, too. Documents of fewer than two tokens have nothing to predict and are left
// out. Throws Misuse if `separator` is not below the vocabulary.
std::vector<Document> documents_by_separator(const TokenFile& file, int64_t separator);
// Returns the documents given by the offsets in the .npy file at `path`: document i has the tokens [offsets[i], offsets[i + 1]).
// Documents of fewer than two tokens are left out. Throws Fault unless the offsets ascend from 0 to the number of tokens.
std::vector<Document> documents_by_offsets(const TokenFile& file, const std::string& path);

struct DocumentOptions {
  int64_t seq = 0;
  int64_t pad = 0;              // token of the positions after the last document of a row
  int64_t ignore_index = -100;  // label of those positions
  bool pack = false;
};

// A row has seq positions: min(size - 1, seq) predictions of a document (a longer document is truncated), then padding.
// With `pack` a row takes consecutive documents, in the order of the file, while the next one fits completely. Rows are made
// once, so a shuffle permutes rows. Memory: 16 bytes per document, 8 bytes per row.
//
// Fields, int64 [rows, seq]: tokens, labels, and padding (1 at its positions, else 0). With `pack` also segments (0, 1, ... per
// document in the row; the padding is one more segment) and positions (from 0 in each segment).
// The constructor throws Misuse if there is no document, or if `pad` is not below the vocabulary.
class DocumentSource : public SampleSource {
 public:
  DocumentSource(std::shared_ptr<const TokenFile> file, std::vector<Document> documents, DocumentOptions options);

  int64_t samples() const override { return static_cast<int64_t>(rows_.size()) - 1; }
  int64_t seq() const override { return options_.seq; }
  Fields make(std::span<const Place> rows, int64_t seed) const override;
  const TokenFile& file() const override { return *file_; }
  double entropy() const override;

 private:
  int64_t predictions(const Document& document) const { return std::min(document.size - 1, options_.seq); }
  void fill(int64_t sample, size_t row, Fields& fields) const;

  std::shared_ptr<const TokenFile> file_;
  std::vector<Document> documents_;
  DocumentOptions options_;
  std::vector<int64_t> rows_;  // row i holds documents [rows_[i], rows_[i + 1])
};

}  // namespace zt::data
