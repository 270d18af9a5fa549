// Samples of variable length: documents, one a row or several packed into a row.
#pragma once

#include "stream.h"

namespace zt::data {

// A document: tokens [begin, begin + size) of the file; its predictions are tokens 1 .. size-1, each from those before it.
struct Document {
  int64_t begin = 0, size = 0;
};

// Documents that end behind each `separator`, which belongs to its document: a model learns to end. Tokens behind the last
// separator are a document too. Documents of fewer than two tokens predict nothing and are left out.
std::vector<Document> documents_by_separator(const TokenFile& file, int64_t separator);
// Document i is tokens [offsets[i], offsets[i + 1]): the .npy file at `path` ascends from 0 to the number of tokens, otherwise
// Fault. Documents of fewer than two tokens are left out.
std::vector<Document> documents_by_offsets(const TokenFile& file, const std::string& path);

struct DocumentOptions {
  int64_t seq = 0;
  int64_t pad = 0;              // token behind the end of the last document of a row
  int64_t ignore_index = -100;  // label there
  bool pack = false;
};

// Rows of seq positions: min(size - 1, seq) predictions of a document (a longer one is cut), then padding.
// With `pack` a row takes consecutive documents, in the order of the file, as long as the next one fits whole; rows are made
// once, so a shuffle permutes rows. Memory: 16 bytes a document, 8 bytes a row.
//
// Fields, int64 [rows, seq]: tokens, labels. With pack also segments (0, 1, ... by document in the row; the padding is a
// segment of its own, the next number) and positions (from 0 in each document and in the padding).
// Misuse when there is no document, or `pad` is not a token.
class DocumentSource : public Source {
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
