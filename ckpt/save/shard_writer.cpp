#include "shard_writer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "zt/base/tensor.h"
#include "zt/io/block_io.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

namespace {

using nlohmann::json;

// The last blocks that were read from sources. Each is needed twice: for its checksum and for the file.
class SourceBlocks {
 public:
  // Returns checksum block `number` of a dataset's `bytes` bytes.
  const std::byte* read(const ShardData& data, int64_t number, int64_t bytes) {
    const auto is_it = [&](const Kept& kept) { return kept.data == &data && kept.number == number; };
    const auto known = std::ranges::find_if(kept_, is_it);
    if (known != kept_.end()) return static_cast<const std::byte*>(known->values.const_data_ptr());
    Kept& next = kept_[turn_++ % kept_.size()];
    const int64_t element = size_of(data.source->dtype());
    const int64_t begin = number * io::kChecksumBlock, end = std::min(bytes, begin + io::kChecksumBlock);
    next = {&data, number, at::empty({(end - begin) / element}, data.source->dtype())};
    data.source->read(data.first + begin / element, next.values);
    return static_cast<const std::byte*>(next.values.const_data_ptr());
  }

 private:
  struct Kept {
    const ShardData* data = nullptr;
    int64_t number = -1;
    at::Tensor values;
  };

  std::array<Kept, 5> kept_;
  size_t turn_ = 0;
};

// The bytes of one dataset, from memory or from a source.
class DatasetBytes {
 public:
  explicit DatasetBytes(const ShardData& data) : data_(&data), size_(data.bytes()) {}

  int64_t size() const { return size_; }
  // Returns the bytes that are in memory, from the first on; null if there are none.
  const std::byte* memory() const {
    return static_cast<const std::byte*>(data_->tensor.defined() ? data_->tensor.const_data_ptr() : nullptr);
  }
  bool is_in_memory() const { return !data_->source; }

  // Calls each(bytes) for the bytes [begin, end) in order, in parts that end where a checksum block ends.
  template <class Each>
  void read(int64_t begin, int64_t end, SourceBlocks& blocks, const Each& each) const {
    while (begin < end) {
      const int64_t number = begin / io::kChecksumBlock, first = number * io::kChecksumBlock;
      const int64_t to = std::min(end, first + io::kChecksumBlock);
      const bool is_here = to <= data_->bytes_in_memory();
      const std::byte* block = is_here ? memory() + first : blocks.read(*data_, number, size_);
      each(std::span(block + (begin - first), static_cast<size_t>(to - begin)));
      begin = to;
    }
  }
  // State that the bytes [begin, end) are read soon, or not any more.
  void prefetch(int64_t begin, int64_t end) const {
    const auto block_end = [&](int64_t byte) { return std::min(io::checksum_blocks(byte) * io::kChecksumBlock, size_); };
    tell_source(&PieceSource::prefetch, block_end(begin), block_end(end));
  }
  void release(int64_t begin, int64_t end) const { tell_source(&PieceSource::release, begin, end); }

 private:
  void tell_source(void (PieceSource::*tell)(int64_t first, int64_t count), int64_t begin, int64_t end) const {
    begin = std::max(begin, data_->bytes_in_memory());
    if (!data_->source || begin >= end) return;
    const int64_t element = size_of(data_->source->dtype());
    ((*data_->source).*tell)(data_->first + begin / element, (end - begin) / element);
  }

  const ShardData* data_;
  int64_t size_;
};

// The content of the file: the image's bytes, with the tensors' bytes at their datasets' places. Also computes checksums.
class ShardBytes {
 public:
  ShardBytes(ShardImage& image, const std::vector<ShardData>& data) : image_(image), checksums_(data.size()) {
    for (size_t i = 0; i < data.size(); ++i) {
      checksums_[i].resize(static_cast<size_t>(io::checksum_blocks(data[i].bytes())));
      if (data[i].bytes() > 0) pieces_.push_back({image.offset(i), DatasetBytes(data[i]), i});
    }
    std::ranges::sort(pieces_, {}, &Piece::begin);
  }

  // Computes the checksums of the blocks of data that begin in [begin, end) of the file.
  void hash(int64_t begin, int64_t end) {
    for (auto piece = first_ending_after(begin); piece != pieces_.end() && piece->begin < end; ++piece) {
      const int64_t size = piece->bytes.size();
      const int64_t first = std::min(io::checksum_blocks(std::max<int64_t>(begin - piece->begin, 0)) * io::kChecksumBlock, size);
      const int64_t last = std::min(io::checksum_blocks(end - piece->begin) * io::kChecksumBlock, size);
      auto checksum = checksums_[piece->dataset].begin() + first / io::kChecksumBlock;
      piece->bytes.read(first, last, blocks_, [&](std::span<const std::byte> block) { *checksum++ = io::xxh3(block); });
    }
  }
  std::vector<std::vector<uint64_t>>& checksums() { return checksums_; }

  // States that the bytes of the file up to `end` are read soon.
  void prefetch(int64_t end) {
    for (auto piece = first_ending_after(prefetched_); piece != pieces_.end() && piece->begin < end; ++piece)
      piece->bytes.prefetch(std::max<int64_t>(prefetched_ - piece->begin, 0), std::min(end - piece->begin, piece->bytes.size()));
    prefetched_ = std::max(prefetched_, end);
  }

  // Returns scratch.size() bytes of the file from `offset` on: in the image's memory if all lie there, otherwise in `scratch`.
  std::span<const std::byte> read(int64_t offset, std::span<std::byte> scratch) {
    const std::byte* image = image_.data();
    const int64_t end = offset + static_cast<int64_t>(scratch.size());
    auto piece = first_ending_after(offset);
    const auto last = std::ranges::lower_bound(pieces_, end, {}, &Piece::begin);
    if (std::all_of(piece, last,
                    [&](const Piece& each) { return each.bytes.is_in_memory() && each.bytes.memory() == image + each.begin; }))
      return {image + offset, scratch.size()};
    // Bytes between datasets come from the image. Reading them commits no memory: untouched pages read as zeros.
    for (int64_t at = offset; at < end;) {
      const bool is_image = piece == pieces_.end() || at < piece->begin;
      const int64_t to = is_image ? std::min(end, piece == pieces_.end() ? end : piece->begin) : std::min(end, piece->end());
      std::byte* place = scratch.data() + at - offset;
      const auto put = [&](std::span<const std::byte> bytes) {
        std::memcpy(place, bytes.data(), bytes.size());
        place += bytes.size();
      };
      if (is_image) {
        put({image + at, static_cast<size_t>(to - at)});
      } else {
        piece->bytes.read(at - piece->begin, to - piece->begin, blocks_, put);
        piece->bytes.release(at - piece->begin, to - piece->begin);
      }
      if (!is_image) ++piece;
      at = to;
    }
    return scratch;
  }

 private:
  struct Piece {
    int64_t begin;  // in the file
    DatasetBytes bytes;
    size_t dataset;
    int64_t end() const { return begin + bytes.size(); }
  };
  std::vector<Piece>::iterator first_ending_after(int64_t offset) {
    return std::ranges::upper_bound(pieces_, offset, {}, &Piece::end);
  }

  ShardImage& image_;
  SourceBlocks blocks_;
  int64_t prefetched_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::vector<uint64_t>> checksums_;  // per dataset
};

// Returns where the blocks of the file begin that are written first: those before have HDF5's own bytes, which contain checksums
// of the data, and the begin of the data.
int64_t first_written(const ShardImage& image, const std::vector<ShardData>& data) {
  int64_t begin = image.bytes();
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i].bytes() > 0) begin = std::min(begin, image.offset(i));
  }
  return (begin + io::kBlock - 1) / io::kBlock * io::kBlock;
}

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

int64_t ShardData::bytes() const {
  return source ? count * size_of(source->dtype()) : static_cast<int64_t>(tensor.nbytes());
}

// Returns the place of the first elements of a dataset in the image.
static at::Tensor place_in(ShardImage& image, size_t dataset, int64_t elements, at::ScalarType dtype) {
  return at::from_blob(image.data() + image.offset(dataset), {elements}, at::TensorOptions().dtype(dtype));
}

void keep_sources(ShardImage& image, std::vector<ShardData>& data) {
  const int64_t start = first_written(image, data);
  for (size_t i = 0; i < data.size(); ++i) {
    ShardData& each = data[i];
    if (!each.source) continue;
    each.source = each.source->keep(std::exchange(each.first, 0), each.count);
    const int64_t element = size_of(each.source->dtype());
    const int64_t last = io::checksum_blocks(std::max<int64_t>(start - image.offset(i), 0)) * io::kChecksumBlock;
    const int64_t early = std::min(each.count, last / element);
    if (early == 0) continue;
    each.tensor = place_in(image, i, early, each.source->dtype());
    each.source->read(0, each.tensor);
    each.source->release(0, early);
  }
}

void copy_into(ShardImage& image, std::vector<ShardData>& data) {
  for (size_t i = 0; i < data.size(); ++i) {
    at::Tensor& tensor = data[i].tensor;
    if (!data[i].source) tensor = place_in(image, i, tensor.numel(), tensor.scalar_type()).copy_(tensor);
  }
}

void add_shard(MasterIndex& index, const std::string& file, ShardRecord record, const std::vector<Write>& writes) {
  const auto shard = static_cast<int32_t>(index.shards.size());
  index.shards.push_back({file, record.bytes, record.rest});
  for (size_t i = 0; i < writes.size(); ++i)
    index.tensors[writes[i].tensor].pieces.push_back(
        {shard, record.offsets[i], writes[i].region, std::move(record.checksums[i])});
}

ShardRecord write_shard(io::FileSystem& files, const std::string& path, ShardImage& image, const std::vector<ShardData>& data) {
  ShardRecord record;
  record.bytes = image.bytes();
  for (size_t i = 0; i < data.size(); ++i) record.offsets.push_back(image.offset(i));
  ShardBytes contents(image, data);
  // The blocks with HDF5's own bytes are written last: by then the checksums are known, computed while the data were written.
  const int64_t start = first_written(image, data);
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
    constexpr int64_t kAhead = 2 * io::kBlock;
    const int64_t end = offset + static_cast<int64_t>(scratch.size());
    contents.prefetch(end + kAhead);
    if (offset >= start) contents.hash(offset, end);
    else if (!is_sealed) seal();
    return contents.read(offset, scratch);
  };
  io::write_file(files, path, record.bytes, source, start);
  record.checksums = std::move(contents.checksums());
  return record;
}

}  // namespace zt::ckpt
