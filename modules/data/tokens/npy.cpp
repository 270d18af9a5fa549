#include "npy.h"

#include <limits>

#include "companion.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

template <class T, class From>
void pack(std::span<const From> values, const std::string& path, std::string& out) {
  out.resize(values.size() * sizeof(T));
  auto* narrow = reinterpret_cast<T*>(out.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::in_range<T>(values[i])) {
      misuse("cannot write {} to '{}': its elements are whole numbers from 0 to {}", values[i], path,
             std::numeric_limits<T>::max());
    }
    narrow[i] = static_cast<T>(values[i]);
  }
}

NpyHeader read_header(const io::InputFile& file) {
  std::string head(static_cast<size_t>(std::min(file.size(), kMostNpyHeaderBytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  return parse_npy_header(head, file.size(), file.path());
}

}  // namespace

NpyFile::NpyFile(std::string path) : file_(std::move(path)), header_(read_header(file_)) {}

std::string NpyFile::digest() const {
  ContentHash hash;
  const auto add = [&](auto items, int64_t) {
    for (const auto item : items) {
      const auto wide = static_cast<uint64_t>(item);
      hash.add({reinterpret_cast<const char*>(&wide), sizeof wide});
    }
  };
  if (count() <= kDigestParts * kDigestPartItems) {
    visit(0, count(), add);
  } else {
    const auto last = static_cast<double>(count() - kDigestPartItems);
    for (int64_t part = 0; part < kDigestParts; ++part) {
      visit(static_cast<int64_t>(last * static_cast<double>(part) / (kDigestParts - 1)), kDigestPartItems, add);
    }
  }
  return fmt::format("{} numbers, hash {}", count(), hash.text());
}

NpyWriter::NpyWriter(std::string path, NpyType type, io::FileSystem& files) : file_(std::move(path), files), type_(type) {
  file_.append(make_npy_header(type, 0));
}

template <class From>
void NpyWriter::append_values(std::span<const From> values) {
  switch (type_) {
    case NpyType::u8:
      pack<uint8_t>(values, file_.path(), buffer_);
      break;
    case NpyType::u16:
      pack<uint16_t>(values, file_.path(), buffer_);
      break;
    case NpyType::u32:
      pack<uint32_t>(values, file_.path(), buffer_);
      break;
    case NpyType::u64:
      pack<uint64_t>(values, file_.path(), buffer_);
      break;
    case NpyType::i64:
      pack<int64_t>(values, file_.path(), buffer_);
      break;
  }
  file_.append(buffer_);
  count_ += static_cast<int64_t>(values.size());
}

template void NpyWriter::append_values(std::span<const int32_t>);
template void NpyWriter::append_values(std::span<const int64_t>);
template void NpyWriter::append_values(std::span<const uint8_t>);

void NpyWriter::commit() {
  file_.overwrite(0, make_npy_header(type_, count_));
  file_.commit();
}

}  // namespace zt::data
