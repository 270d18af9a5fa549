#include "documents.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::data {

namespace {

std::vector<Document> documents_between(const std::vector<int64_t>& borders) {
  std::vector<Document> documents;
  for (size_t i = 0; i + 1 < borders.size(); ++i) documents.push_back({borders[i], borders[i + 1] - borders[i]});
  return documents;
}

std::vector<Document> without_short_ones(std::vector<Document> documents) {
  std::erase_if(documents, [](const Document& document) { return document.size < 2; });
  return documents;
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
  return without_short_ones(documents_between(borders));
}

std::vector<Document> documents_by_offsets(const TokenFile& file, const std::string& path) {
  return without_short_ones(all_documents(file, path));
}

std::vector<Document> all_documents(const TokenFile& file, const std::string& path) {
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

}  // namespace zt::data
