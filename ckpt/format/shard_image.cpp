#include "shard_image.h"

#include <bit>
#include <set>

#include "hdf5/image.h"
#include "hdf5/tree.h"
#include "hdf5/types.h"
#include "zt/base/error.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

namespace {

constexpr const char* kChecksum = "xxh3";

void check(const std::vector<ShardDataset>& datasets) {
  std::set<std::string> paths;
  for (const ShardDataset& dataset : datasets) {
    if (dataset.count < 0) misuse("a dataset cannot have {} elements: '{}'", dataset.count, dataset.path);
    if (!paths.insert(dataset.path).second) misuse("two datasets of one shard have the path '{}'", dataset.path);
  }
}

int64_t data_bytes(const ShardDataset& dataset) {
  return dataset.count * static_cast<int64_t>(c10::elementSize(dataset.dtype));
}

// Returns an upper bound of the size of HDF5's own bytes. They all lie at the file's start then; an excess would lie after data.
int64_t metadata_bytes(const std::vector<ShardDataset>& datasets) {
  int64_t bytes = 4096;
  std::set<std::string> paths;  // of datasets and of the groups in which they are
  for (const ShardDataset& dataset : datasets) {
    for (size_t end = dataset.path.size(); end != std::string::npos && end > 0; end = dataset.path.rfind('/', end - 1))
      paths.insert(dataset.path.substr(0, end));
  }
  for (const std::string& path : paths) bytes += 512 + 4 * static_cast<int64_t>(path.size());
  return (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
}

int64_t capacity(const std::vector<ShardDataset>& datasets) {
  int64_t bytes = metadata_bytes(datasets);
  for (const ShardDataset& dataset : datasets) bytes += data_bytes(dataset) + kDataAlignment;
  return bytes;
}

Handle make_dataset(TreeWriter& tree, const ShardDataset& dataset, hid_t creation_list) {
  Handle made = tree.dataset(dataset.path, hdf5_type(dataset.dtype), shape_of({dataset.count}), creation_list);
  const Handle attribute = tree.attribute(made, kChecksum, H5T_STD_U64LE, shape_of({}));
  const uint64_t none = 0;
  checked(H5Awrite(attribute, H5T_NATIVE_UINT64, &none), "write an attribute of '" + dataset.path + "'");
  return made;
}

}  // namespace

ShardImage::ShardImage(const std::vector<ShardDataset>& datasets) : memory_((check(datasets), capacity(datasets))) {
  const Hdf5Session session;
  LinkCounts counts;
  for (const ShardDataset& dataset : datasets) counts.add(dataset.path);
  Handle file = create_image(memory_, {0, kDataAlignment, metadata_bytes(datasets), counts.of("/")});
  {
    TreeWriter tree(file, std::move(counts));
    const Handle list = dataset_list(H5D_CONTIGUOUS);
    for (const ShardDataset& dataset : datasets) {
      const Handle made = make_dataset(tree, dataset, list);
      const haddr_t offset = H5Dget_offset(made);
      if (dataset.count > 0 && offset == HADDR_UNDEF) hdf5_fault("place dataset '" + dataset.path + "'");
      data_.push_back({dataset.count > 0 ? static_cast<int64_t>(offset) : 0, data_bytes(dataset)});
      paths_.push_back(dataset.path);
    }
  }
  file.close("write a shard's HDF5 structure");
  rest_ = io::gaps_between(data_, bytes());
  for (size_t i = 1; i < rest_.size(); ++i) {
    if (rest_[i].bytes >= kDataAlignment) fault("libhdf5 put {} of its own bytes after a shard's data", rest_[i].bytes);
  }
}

void ShardImage::set_checksums(std::span<const uint64_t> checksums) {
  if (checksums.size() != paths_.size()) misuse("{} checksums were given for {} datasets", checksums.size(), paths_.size());
  const Hdf5Session session;
  Handle file = change_image(memory_);
  for (size_t i = 0; i < paths_.size(); ++i) {
    const std::string what = "change a checksum of '" + paths_[i] + "'";
    // HDF5 1.10.8 writes the attribute only if the dataset is open.
    const Handle dataset(H5Dopen2(file, paths_[i].c_str(), H5P_DEFAULT), H5Dclose, what);
    const Handle attribute(H5Aopen(dataset, kChecksum, H5P_DEFAULT), H5Aclose, what);
    checked(H5Awrite(attribute, H5T_NATIVE_UINT64, &checksums[i]), what);
  }
  file.close("write a shard's HDF5 structure");
}

uint64_t ShardImage::rest() const {
  io::Hash hash;
  for (const io::FileRange& range : rest_) hash.add({memory_.data() + range.offset, static_cast<size_t>(range.bytes)});
  return hash.value();
}

uint64_t piece_checksum(std::span<const uint64_t> blocks) {
  static_assert(std::endian::native == std::endian::little, "checksums are hashed as they lie in memory");
  return io::xxh3(std::as_bytes(blocks));
}

}  // namespace zt::ckpt
