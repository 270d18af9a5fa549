#include "text_reader.h"

#include <algorithm>

namespace zt::data {

namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 20;

}  // namespace

TextReader::~TextReader() = default;

std::string_view MemoryText::read(int64_t at, int64_t bytes) {
  return text_.substr(static_cast<size_t>(at), static_cast<size_t>(bytes));
}

std::string_view FileText::read(int64_t at, int64_t bytes) {
  bytes = std::min(bytes, size() - at);
  const auto buffered = static_cast<int64_t>(buffer_.size());
  if (at < begin_ || at + bytes > begin_ + buffered) {
    buffer_.resize(static_cast<size_t>(std::min(std::max(bytes, kBufferBytes), size() - at)));
    begin_ = at;
    file_.read(at, std::as_writable_bytes(std::span(buffer_)));
  }
  return std::string_view(buffer_).substr(static_cast<size_t>(at - begin_), static_cast<size_t>(bytes));
}

}  // namespace zt::data
