#include "mask_file.h"

#include <filesystem>

#include "zt/base/error.h"

namespace zt::data {

namespace {

std::string existing_mask(const TokenFile& tokens) {
  std::string path = beside(tokens.path(), ".mask.npy");
  if (!std::filesystem::exists(path)) {
    fault(
        "'{}' has no mask '{}' beside it, which says which tokens count in the loss: keep the files of one run of ztoolkit "
        "tokenize --chat together, or make them again",
        tokens.path(), path);
  }
  return path;
}

}  // namespace

MaskFile::MaskFile(const TokenFile& tokens) : file_(existing_mask(tokens)) {
  if (file_.type() != NpyType::u8) {
    fault("the mask '{}' has the dtype '{}', where '{}' is needed: make it again with ztoolkit tokenize --chat", path(),
          descr(file_.type()), descr(NpyType::u8));
  }
  if (file_.count() != tokens.size()) {
    fault(
        "the mask '{}' has {} numbers, and '{}' has {} tokens: the files are not from one run. Make both again with ztoolkit "
        "tokenize --chat",
        path(), file_.count(), tokens.path(), tokens.size());
  }
}

void MaskFile::read(int64_t first, std::span<uint8_t> out) const {
  file_.visit(first, static_cast<int64_t>(out.size()), [&](auto values, int64_t begin) {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t index = begin + static_cast<int64_t>(i);
      if (static_cast<uint64_t>(values[i]) > 1) refuse(index, static_cast<uint64_t>(values[i]));
      out[static_cast<size_t>(index - first)] = static_cast<uint8_t>(values[i]);
    }
  });
}

std::vector<int64_t> MaskFile::first_labels(const std::vector<Document>& documents) const {
  std::vector<int64_t> first;
  for (const Document& document : documents) first.push_back(document.size);
  size_t at = 0;
  file_.visit(0, file_.count(), [&](auto values, int64_t begin) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      const int64_t index = begin + static_cast<int64_t>(i);
      if (static_cast<uint64_t>(values[i]) > 1) refuse(index, static_cast<uint64_t>(values[i]));
      while (index >= documents[at].begin + documents[at].size) ++at;
      first[at] = std::min(first[at], index - documents[at].begin);
    }
  });
  return first;
}

void MaskFile::refuse(int64_t index, uint64_t number) const {
  fault(
      "number {} of the mask '{}' is {}, where 1 is a token that counts in the loss and 0 another one: the file is damaged, or "
      "no mask. Make it again with ztoolkit tokenize --chat",
      index, path(), number);
}

}  // namespace zt::data
