#include "document_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "zt/base/error.h"

namespace zt::data {

namespace {

// Returns the documents between consecutive borders, without those of fewer than two tokens.
std::vector<Document> documents_between(const std::vector<int64_t>& borders) {
  std::vector<Document> documents;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const int64_t size = borders[i + 1] - borders[i];
    if (size >= 2) documents.push_back({borders[i], size});
  }
  return documents;
}

std::span<int64_t> part_of_row(Fields& fields, const char* name, size_t row, int64_t first, int64_t count) {
  const at::Tensor& matrix = fields.at(name);
  return {matrix.data_ptr<int64_t>() + static_cast<int64_t>(row) * matrix.size(1) + first, static_cast<size_t>(count)};
}

void number(std::span<int64_t> segments, std::span<int64_t> positions, int64_t segment) {
  std::fill(segments.begin(), segments.end(), segment);
  std::iota(positions.begin(), positions.end(), int64_t{0});
}

}  // namespace

std::vector<Document> documents_by_separator(const TokenFile& file, int64_t separator) {
  if (separator < 0 || separator >= file.vocab()) {
    misuse("separator is {}, which is not a token of '{}': its vocabulary has the ids 0 to {}", separator, file.path(),
           file.vocab() - 1);
  }
  std::vector<int64_t> borders{0};
  for (const int64_t place : file.find(separator)) borders.push_back(place + 1);
  borders.push_back(file.size());
  return documents_between(borders);
}

std::vector<Document> documents_by_offsets(const TokenFile& file, const std::string& path) {
  const NpyFile offsets(path);
  std::vector<int64_t> borders;
  offsets.visit(0, offsets.count(), [&](auto values, int64_t) { borders.insert(borders.end(), values.begin(), values.end()); });
  if (borders.size() < 2 || borders.front() != 0 || borders.back() != file.size() || !std::ranges::is_sorted(borders)) {
    fault(
        "the offsets in '{}' do not divide '{}' into documents: they must ascend from 0 to its number of tokens, {}. They are "
        "{} numbers from {} to {}",
        path, file.path(), file.size(), borders.size(), borders.empty() ? 0 : borders.front(),
        borders.empty() ? 0 : borders.back());
  }
  return documents_between(borders);
}

DocumentSource::DocumentSource(std::shared_ptr<const TokenFile> file, std::vector<Document> documents, DocumentOptions options)
    : file_(std::move(file)), documents_(std::move(documents)), options_(options) {
  if (documents_.empty()) {
    misuse(
        "'{}' has no document of at least two tokens in this split: check the separator or the offsets, and the validation "
        "fraction",
        file_->path());
  }
  if (options_.pad < 0 || options_.pad >= file_->vocab()) {
    misuse("pad is {}, which is not a token: the vocabulary has the ids 0 to {}", options_.pad, file_->vocab() - 1);
  }
  int64_t used = options_.seq;  // full, so that the first document opens the first row
  for (size_t i = 0; i < documents_.size(); ++i) {
    const int64_t wanted = predictions(documents_[i]);
    if (!options_.pack || used + wanted > options_.seq) {
      rows_.push_back(static_cast<int64_t>(i));
      used = 0;
    }
    used += wanted;
  }
  rows_.push_back(static_cast<int64_t>(documents_.size()));
}

Fields DocumentSource::make(std::span<const Place> rows, int64_t) const {
  Fields fields;
  const std::vector<int64_t> shape{static_cast<int64_t>(rows.size()), options_.seq};
  for (const char* name : {"tokens", "labels"}) fields[name] = at::empty(shape, at::kLong);
  fields["padding"] = at::zeros(shape, at::kLong);
  if (options_.pack) {
    for (const char* name : {"segments", "positions"}) fields[name] = at::empty(shape, at::kLong);
  }
  for (size_t row = 0; row < rows.size(); ++row) fill(rows[row].sample, row, fields);
  return fields;
}

void DocumentSource::fill(int64_t sample, size_t row, Fields& fields) const {
  const int64_t first = rows_[static_cast<size_t>(sample)], last = rows_[static_cast<size_t>(sample) + 1];
  int64_t at = 0;
  const auto part = [&](const char* name, int64_t count) { return part_of_row(fields, name, row, at, count); };
  for (int64_t i = first; i < last; ++i) {
    const Document& document = documents_[static_cast<size_t>(i)];
    const int64_t count = predictions(document);
    file_->read_shifted(document.begin, part("tokens", count), part("labels", count));
    if (options_.pack) number(part("segments", count), part("positions", count), i - first);
    at += count;
  }
  const int64_t rest = options_.seq - at;
  std::ranges::fill(part("tokens", rest), options_.pad);
  std::ranges::fill(part("labels", rest), options_.ignore_index);
  std::ranges::fill(part("padding", rest), 1);
  if (options_.pack) number(part("segments", rest), part("positions", rest), last - first);
}

double DocumentSource::entropy() const {
  std::vector<int64_t> counts(static_cast<size_t>(file_->vocab()));
  for (const Document& document : documents_) {
    file_->add_counts({document.begin, document.begin + document.size}, counts);
  }
  return data::entropy(counts);
}

}  // namespace zt::data
