#include "shard_writer.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "zt/io/block_io.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

namespace {

using nlohmann::json;

std::span<const std::byte> bytes_of(const at::Tensor& data) {
  return {static_cast<const std::byte*>(data.const_data_ptr()), data.nbytes()};
}

// The content of the file: the image's bytes, with the tensors' bytes at their datasets' places. Also computes checksums.
class ShardBytes {
 public:
  ShardBytes(ShardImage& image, const std::vector<at::Tensor>& data) : image_(image), checksums_(data.size()) {
    for (size_t i = 0; i < data.size(); ++i) {
      const std::span<const std::byte> bytes = bytes_of(data[i]);
      checksums_[i].resize(io::checksum_blocks(static_cast<int64_t>(bytes.size())));
      if (!bytes.empty()) pieces_.push_back({image.offset(i), bytes, i});
    }
    std::ranges::sort(pieces_, {}, &Piece::begin);
  }

  // Returns the first byte of data. HDF5's own bytes lie before it and contain checksums of the data.
  int64_t begin_of_data() const { return pieces_.empty() ? image_.bytes() : pieces_.front().begin; }

  // Computes the checksums of the blocks of data that begin in [begin, end) of the file.
  void hash(int64_t begin, int64_t end) {
    for (auto piece = first_ending_after(begin); piece != pieces_.end() && piece->begin < end; ++piece) {
      const auto size = static_cast<int64_t>(piece->bytes.size());
      const int64_t first = std::min(io::checksum_blocks(std::max<int64_t>(begin - piece->begin, 0)) * io::kChecksumBlock, size);
      const int64_t last = std::min(io::checksum_blocks(end - piece->begin) * io::kChecksumBlock, size);
      auto& checksums = checksums_[piece->dataset];
      io::for_each_block(first, piece->bytes.subspan(first, last - first),
                         [&](size_t number, std::span<const std::byte> block) { checksums[number] = io::xxh3(block); });
    }
  }
  std::vector<std::vector<uint64_t>>& checksums() { return checksums_; }

  // Returns scratch.size() bytes of the file from `offset` on: in the image's memory if all lie there, otherwise in `scratch`.
  std::span<const std::byte> read(int64_t offset, std::span<std::byte> scratch) const {
    const std::byte* image = image_.data();
    const int64_t end = offset + static_cast<int64_t>(scratch.size());
    auto piece = first_ending_after(offset);
    const auto last = std::ranges::lower_bound(pieces_, end, {}, &Piece::begin);
    if (std::all_of(piece, last, [&](const Piece& each) { return each.bytes.data() == image + each.begin; }))
      return {image + offset, scratch.size()};
    // Bytes between datasets come from the image. Reading them commits no memory: untouched pages read as zeros.
    for (int64_t at = offset; at < end;) {
      const bool is_image = piece == pieces_.end() || at < piece->begin;
      const int64_t to = is_image ? std::min(end, piece == pieces_.end() ? end : piece->begin) : std::min(end, piece->end());
      std::memcpy(scratch.data() + at - offset, is_image ? image + at : piece->bytes.data() + at - piece->begin, to - at);
      if (!is_image) ++piece;
      at = to;
    }
    return scratch;
  }

 private:
  struct Piece {
    int64_t begin;  // in the file
    std::span<const std::byte> bytes;
    size_t dataset;
    int64_t end() const { return begin + static_cast<int64_t>(bytes.size()); }
  };
  std::vector<Piece>::const_iterator first_ending_after(int64_t offset) const {
    return std::ranges::upper_bound(pieces_, offset, {}, &Piece::end);
  }

  ShardImage& image_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<uint64_t>> checksums_;  // per dataset
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

void add_shard(MasterIndex& index, const std::string& file, ShardRecord record, const std::vector<Write>& writes) {
  const auto shard = static_cast<int32_t>(index.shards.size());
  index.shards.push_back({file, record.bytes, record.rest});
  for (size_t i = 0; i < writes.size(); ++i)
    index.tensors[writes[i].tensor].pieces.push_back(
        {shard, record.offsets[i], writes[i].region, std::move(record.checksums[i])});
}

ShardRecord write_shard(io::FileSystem& files, const std::string& path, ShardImage& image, const std::vector<at::Tensor>& data) {
  ShardRecord record;
  record.bytes = image.bytes();
  for (size_t i = 0; i < data.size(); ++i) record.offsets.push_back(image.offset(i));
  ShardBytes contents(image, data);
  // The blocks with HDF5's own bytes are written last: by then the checksums are known, computed while the data were written.
  const int64_t start = (contents.begin_of_data() + io::kBlock - 1) / io::kBlock * io::kBlock;
  bool is_sealed = false;
  const auto seal = [&] {
    contents.hash(0, start);
    std::vector<uint64_t> of_datasets;
    for (const auto& blocks : contents.checksums()) of_datasets.push_back(piece_checksum(blocks));
    image.set_checksums(of_datasets);
    record.rest = image.rest();
    is_sealed = true;
  };
  const auto source = [&](int64_t offset, std::span<std::byte> scratch) {
    if (offset >= start) contents.hash(offset, offset + static_cast<int64_t>(scratch.size()));
    else if (!is_sealed) seal();
    return contents.read(offset, scratch);
  };
  io::write_file(files, path, record.bytes, source, start);
  record.checksums = std::move(contents.checksums());
  return record;
}

}  // namespace zt::ckpt
