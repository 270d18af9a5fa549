#include "tensor_reader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "zt/base/error.h"
#include "zt/io/block_io.h"
#include "zt/io/hash.h"
#include "zt/reshard/ranges.h"
#include "zt/reshard/reshard.h"

namespace zt::ckpt {

namespace {

static_assert(io::kBlock % io::kChecksumBlock == 0, "a read has whole checksum blocks");

// The destination of a request: its tensor, or host memory that is copied to the tensor at the end.
struct ReadTarget {
  at::Tensor host;  // flat
  CopyList copies;
};

// A range of whole checksum blocks of one saved piece, for one request.
struct BlockRead {
  const SavedPiece* piece;
  const ReadRequest* request;
  ReadTarget* target;
  int32_t source;      // number of the piece in its tensor
  int64_t begin, end;  // bytes [begin, end) of the piece
};

int64_t element_bytes(const SavedTensor& tensor) {
  return static_cast<int64_t>(c10::elementSize(tensor.dtype));
}

class PieceReader {
 public:
  PieceReader(io::FileSystem& files, const std::string& folder, const MasterIndex& index)
      : files_(files), folder_(folder), index_(index) {}

  void add(const ReadRequest& request) {
    ReadTarget& target = *targets_.emplace_back(std::make_unique<ReadTarget>());
    target.host = request.to.is_cpu() ? request.to : at::empty(request.to.sizes(), request.to.options().device(at::kCPU));
    const SavedTensor& tensor = *request.tensor;
    std::vector<Region> saved;
    for (const SavedPiece& piece : tensor.pieces) saved.push_back(piece.region);
    target.copies = make_copy_list(tensor.shape, saved, request.region);
    if (target.copies.missing > 0)
      fault("the checkpoint '{}' lacks {} elements of '{}': no shard holds them", folder_, target.copies.missing, tensor.name);
    for (size_t i = 0; i < tensor.pieces.size(); ++i) add_reads(request, target, static_cast<int32_t>(i));
    requests_.push_back(&request);
  }

  void read(int64_t first_shard) {
    const auto shards = static_cast<int64_t>(index_.shards.size());
    for (int64_t i = 0; i < shards; ++i) read_shard(static_cast<int32_t>((first_shard + i) % shards));
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!requests_[i]->to.is_cpu()) at::Tensor(requests_[i]->to).copy_(targets_[i]->host);
    }
  }

 private:
  void add_reads(const ReadRequest& request, ReadTarget& target, int32_t source) {
    const SavedPiece& piece = request.tensor->pieces[source];
    const int64_t size = element_bytes(*request.tensor);
    for (const PieceBytes& range :
         block_ranges(runs_of(target.copies, source), size, piece.region.count * size, io::kChecksumBlock)) {
      for (int64_t at = range.begin; at < range.end; at += io::kBlock)
        reads_[piece.shard].push_back({&piece, &request, &target, source, at, std::min(at + io::kBlock, range.end)});
    }
  }

  void read_shard(int32_t shard) {
    auto& reads = reads_[shard];
    if (reads.empty()) return;
    std::ranges::sort(reads, {}, [](const BlockRead& each) { return each.piece->offset + each.begin; });
    std::vector<io::FileRange> ranges;
    for (const BlockRead& each : reads) ranges.push_back({each.piece->offset + each.begin, each.end - each.begin});
    const std::string path = folder_ + "/" + index_.shards[shard].file;
    io::read_ranges(files_, path, ranges, [&](size_t i, std::span<const std::byte> data) {
      check(reads[i], data, path);
      put(reads[i], data);
    });
  }

  static void check(const BlockRead& read, std::span<const std::byte> data, const std::string& path) {
    io::for_each_block(read.begin, data, [&](size_t number, std::span<const std::byte> block) {
      const size_t begin = number * io::kChecksumBlock;
      if (io::xxh3(block) != read.piece->checksums[number])
        fault(
            "'{}' is damaged: bytes {} to {} of '{}' in it differ from those that were saved (by their checksum): load another "
            "checkpoint",
            path, begin, begin + block.size(), read.request->tensor->name);
    });
  }

  // Converts the elements that were read, and copies them to their places.
  static void put(const BlockRead& read, std::span<const std::byte> data) {
    const SavedTensor& tensor = *read.request->tensor;
    const int64_t size = element_bytes(tensor), begin = read.begin / size, end = read.end / size;
    const at::Tensor& host = read.target->host;
    // A damaged or foreign file may have any number in a boolean's byte.
    const bool is_bool = tensor.dtype == at::kBool;
    const at::Tensor saved =
        at::from_blob(const_cast<std::byte*>(data.data()), {end - begin}, is_bool ? at::kByte : tensor.dtype);
    const at::Tensor wanted = (is_bool ? saved.ne(0) : saved).to(host.scalar_type());
    const auto width = static_cast<int64_t>(host.element_size());
    const auto* from = static_cast<const std::byte*>(wanted.const_data_ptr());
    auto* to = static_cast<std::byte*>(host.mutable_data_ptr());
    for (const CopyRun& run : runs_of(read.target->copies, read.source)) {
      for_each_stretch(run, begin, end, [&](int64_t first, int64_t place, int64_t count) {
        std::memcpy(to + place * width, from + (first - begin) * width, count * width);
      });
    }
  }

  io::FileSystem& files_;
  const std::string& folder_;
  const MasterIndex& index_;
  std::vector<const ReadRequest*> requests_;
  std::vector<std::unique_ptr<ReadTarget>> targets_;
  std::map<int32_t, std::vector<BlockRead>> reads_;  // by shard
};

}  // namespace

void read_tensors(io::FileSystem& files, const std::string& folder, const MasterIndex& index,
                  const std::vector<ReadRequest>& requests, int64_t first_shard) {
  PieceReader reader(files, folder, index);
  for (const ReadRequest& request : requests) reader.add(request);
  if (!index.shards.empty()) reader.read(first_shard);
}

}  // namespace zt::ckpt
