#include "shard_writer.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "hash.h"
#include "index.h"
#include "transfer.h"

namespace zt::ckpt {

namespace {

using nlohmann::json;
using Bytes = std::span<const std::byte>;

Bytes bytes_of(const at::Tensor& data) {
  return {static_cast<const std::byte*>(data.const_data_ptr()), data.nbytes()};
}

std::vector<uint64_t> checksums_of(Bytes bytes) {
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < bytes.size(); at += kChecksumBlock)
    sums.push_back(xxh3(bytes.subspan(at, std::min<size_t>(kChecksumBlock, bytes.size() - at))));
  return sums;
}

// The file: the image, and over it tensors that lie elsewhere.
class Overlay {
 public:
  Overlay(ShardImage& image, const std::vector<at::Tensor>& data) : image_(image.data()) {
    for (size_t i = 0; i < data.size(); ++i) {
      const Bytes bytes = bytes_of(data[i]);
      if (!bytes.empty() && bytes.data() != image_ + image.offset(i)) pieces_.push_back({image.offset(i), bytes});
    }
    std::ranges::sort(pieces_, {}, &Piece::begin);
  }

  Bytes read(int64_t offset, std::span<std::byte> scratch) const {
    const int64_t end = offset + static_cast<int64_t>(scratch.size());
    auto piece = std::ranges::upper_bound(pieces_, offset, {}, &Piece::end);
    if (piece == pieces_.end() || piece->begin >= end) return {image_ + offset, scratch.size()};
    // Between datasets lie bytes of the image; where no page of it was touched they are zeros and stay untouched.
    for (int64_t at = offset; at < end;) {
      const bool is_image = piece == pieces_.end() || at < piece->begin;
      const int64_t to = is_image ? std::min(end, piece == pieces_.end() ? end : piece->begin) : std::min(end, piece->end());
      std::memcpy(scratch.data() + at - offset, is_image ? image_ + at : piece->bytes.data() + at - piece->begin, to - at);
      if (!is_image) ++piece;
      at = to;
    }
    return scratch;
  }

 private:
  struct Piece {
    int64_t begin;
    Bytes bytes;
    int64_t end() const { return begin + static_cast<int64_t>(bytes.size()); }
  };

  const std::byte* image_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::string ShardRecord::packed() const {
  std::string text;
  json::to_cbor(json{bytes, rest, offsets, checksums}, text);
  return text;
}

ShardRecord ShardRecord::unpacked(const std::string& text) {
  const json value = json::from_cbor(text);
  return {value[0], value[1], value[2], value[3]};
}

std::vector<at::Tensor> copy_into(ShardImage& image, const std::vector<at::Tensor>& data) {
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < data.size(); ++i) {
    const at::Tensor place = at::from_blob(image.data() + image.offset(i), data[i].sizes(), data[i].options().device(at::kCPU));
    copies.push_back(place.copy_(data[i]));
  }
  return copies;
}

ShardRecord write_shard(FileSystem& files, const std::string& path, ShardImage& image, const std::vector<at::Tensor>& data) {
  ShardRecord record;
  std::vector<uint64_t> of_datasets;
  for (size_t i = 0; i < data.size(); ++i) {
    record.offsets.push_back(image.offset(i));
    record.checksums.push_back(checksums_of(bytes_of(data[i])));
    of_datasets.push_back(piece_checksum(record.checksums.back()));
  }
  image.set_checksums(of_datasets);
  record.bytes = image.bytes();
  record.rest = image.rest();
  const Overlay file(image, data);
  write_file(files, path, record.bytes, [&](int64_t offset, std::span<std::byte> scratch) { return file.read(offset, scratch); });
  return record;
}

}  // namespace zt::ckpt
