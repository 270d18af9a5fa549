#include "records.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::data {

Records::~Records() = default;

TextRecords::TextRecords(std::shared_ptr<const TokenFile> file, std::vector<Document> documents, int64_t seq)
    : file_(std::move(file)), documents_(std::move(documents)), seq_(seq) {
  if (documents_.empty()) {
    misuse(
        "'{}' has no document of at least two tokens in this split: check the separator or the offsets, and the validation "
        "fraction and the phase",
        file_->path());
  }
}

int64_t TextRecords::positions(int64_t record, int /*side*/) const {
  return std::min(documents_[static_cast<size_t>(record)].size - 1, seq_);
}

void TextRecords::read(int64_t record, int /*side*/, int64_t /*ignore_index*/, std::span<int64_t> tokens,
                       std::span<int64_t> labels) const {
  file_->read_shifted(documents_[static_cast<size_t>(record)].begin, tokens, labels);
}

void TextRecords::add_counts(std::span<int64_t> counts) const {
  for (const Document& document : documents_) file_->add_counts({document.begin, document.begin + document.size}, counts);
}

ChatRecords::ChatRecords(std::shared_ptr<const TokenFile> file, std::shared_ptr<const MaskFile> mask,
                         std::vector<ChatRecord> records, int sides)
    : file_(std::move(file)), mask_(std::move(mask)), records_(std::move(records)), sides_(sides) {}

int64_t ChatRecords::positions(int64_t record, int side) const {
  const ChatRecord& of = records_[static_cast<size_t>(record)];
  const int64_t size = of.head.size + of.tails[side].size;
  return sides_ == 2 ? size : std::max<int64_t>(size - 1, 0);
}

void ChatRecords::read(int64_t record, int side, int64_t ignore_index, std::span<int64_t> tokens,
                       std::span<int64_t> labels) const {
  if (tokens.empty()) return;
  const ChatRecord& of = records_[static_cast<size_t>(record)];
  std::vector<int64_t> all(static_cast<size_t>(of.head.size + of.tails[side].size));
  std::vector<uint8_t> mask(all.size());
  size_t at = 0;
  for (const Document& part : {of.head, of.tails[side]}) {
    const auto size = static_cast<size_t>(part.size);
    file_->read(part.begin, std::span(all).subspan(at, size));
    mask_->read(part.begin, std::span(mask).subspan(at, size));
    at += size;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = all[i];
    labels[i] = i + 1 < all.size() && mask[i + 1] != 0 ? all[i + 1] : ignore_index;
  }
}

void ChatRecords::add_counts(std::span<int64_t> counts) const {
  for (const ChatRecord& record : records_) {
    for (const Document& part : {record.head, record.tails[0], record.tails[1]})
      file_->add_counts({part.begin, part.begin + part.size}, counts);
  }
}

}  // namespace zt::data
