// Tests every byte and every checksum of shards, for tensors inside the image and elsewhere.
#include "save/shard_writer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "format/index.h"
#include "io/content.h"
#include "io/faults/fault_fs.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

namespace {

struct Case {
  const char* name;
  std::vector<int64_t> sizes;  // bytes
};

std::vector<int64_t> many(int64_t count, int64_t bytes) {
  return std::vector<int64_t>(static_cast<size_t>(count), bytes);
}

// Sizes just below and above a checksum block and a block that is written. In the last case HDF5's own bytes fill more than one
// written block.
const std::vector<Case> kCases{
    {"nothing", {}},
    {"small", {0, 1, 4097, 100}},
    {"blocks",
     {io::kChecksumBlock, io::kChecksumBlock - 1, 0, io::kChecksumBlock + 1, 5 * io::kBlock + 3, 4096, 2 * io::kBlock, 300'000}},
    {"many", many(8000, 700)},
};

std::vector<at::Tensor> tensors_of(const Case& each) {
  std::vector<at::Tensor> tensors;
  uint64_t seed = 1;
  for (const int64_t size : each.sizes) {
    const io::Bytes bytes = io::content(size, seed++);
    tensors.push_back(at::empty({size}, at::kByte));
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(tensors.back().mutable_data_ptr()));
  }
  return tensors;
}

std::vector<ShardDataset> datasets_of(const Case& each) {
  std::vector<ShardDataset> datasets;
  for (const int64_t size : each.sizes) datasets.push_back({"/t" + std::to_string(datasets.size()), at::kByte, size});
  return datasets;
}

class TensorSource : public PieceSource {
 public:
  explicit TensorSource(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::ScalarType dtype() const override { return tensor_.scalar_type(); }
  void read(int64_t first, at::Tensor to) const override { to.copy_(tensor_.narrow(0, first, to.numel())); }
  void write(int64_t first, const at::Tensor& from) override { tensor_.narrow(0, first, from.numel()).copy_(from); }
  std::shared_ptr<PieceSource> keep(int64_t first, int64_t count) const override;

 protected:
  const at::Tensor tensor_;
};

// Elements that change once they are released.
class KeptSource : public TensorSource {
 public:
  using TensorSource::TensorSource;
  void release(int64_t first, int64_t count) override {
    tensor_.narrow(0, first, count).fill_(77);
    released_ += count;
  }
  int64_t released() const { return released_; }

 private:
  int64_t released_ = 0;
};

std::shared_ptr<PieceSource> TensorSource::keep(int64_t first, int64_t count) const {
  return std::make_shared<KeptSource>(tensor_.narrow(0, first, count).clone());
}

TEST(ShardWriter, WritesWhatIsGivenAndItsChecksums) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.name);
    const auto tensors = tensors_of(each);
    ShardImage image(datasets_of(each)), snapshot(datasets_of(each)), streamed(datasets_of(each));
    io::FaultFs files;
    std::vector<ShardData> data, sources;
    for (const at::Tensor& tensor : tensors) {
      data.push_back({.tensor = tensor});
      sources.push_back({.source = std::make_shared<TensorSource>(tensor), .first = 0, .count = tensor.numel()});
    }
    const ShardRecord record = write_shard(files, "elsewhere", image, data);
    copy_into(snapshot, data);
    const ShardRecord copied = write_shard(files, "in_place", snapshot, data);
    const ShardRecord read = write_shard(files, "from_sources", streamed, sources);
    ShardImage reused(datasets_of(each));
    keep_sources(reused, sources);
    const ShardRecord kept = write_shard(files, "from_kept", reused, sources);
    const io::Bytes file = io::read_whole(files, "elsewhere");
    EXPECT_EQ(file, read_whole(files, "in_place"));
    EXPECT_EQ(file, read_whole(files, "from_sources"));
    EXPECT_EQ(file, read_whole(files, "from_kept"));
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(static_cast<const KeptSource&>(*sources[i].source).released(), tensors[i].numel());
    EXPECT_EQ(record.packed(), copied.packed());
    EXPECT_EQ(record.packed(), read.packed());
    EXPECT_EQ(record.packed(), kept.packed());
    ASSERT_EQ(record.bytes, static_cast<int64_t>(file.size()));

    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::span wanted(static_cast<const std::byte*>(tensors[i].const_data_ptr()), tensors[i].nbytes());
      ASSERT_TRUE(std::ranges::equal(std::span(file).subspan(record.offsets[i], wanted.size()), wanted)) << i;
      ASSERT_EQ(static_cast<int64_t>(record.checksums[i].size()), io::checksum_blocks(each.sizes[i]));
      for (size_t block = 0; block < record.checksums[i].size(); ++block) {
        const auto rest = wanted.subspan(block * io::kChecksumBlock);
        ASSERT_EQ(record.checksums[i][block], io::xxh3(rest.first(std::min<size_t>(io::kChecksumBlock, rest.size()))))
            << i << " " << block;
      }
    }
    io::Hash hash;
    for (const io::FileRange& range : image.rest_ranges()) hash.add(std::span(file).subspan(range.offset, range.bytes));
    EXPECT_EQ(record.rest, hash.value());
  }
}

}  // namespace

}  // namespace zt::ckpt
