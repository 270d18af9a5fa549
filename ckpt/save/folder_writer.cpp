#include "folder_writer.h"

#include <utility>

#include "folder/store.h"
#include "format/check.h"
#include "format/master.h"
#include "hdf5/names.h"
#include "shard_writer.h"
#include "zt/io/small_files.h"

namespace zt::ckpt {

FolderWriter::FolderWriter(io::FileSystem& files, std::string root, int64_t step)
    : files_(files), root_(std::move(root)), partial_(begin(files_, root_, step)), step_(step) {}

FolderWriter::~FolderWriter() {
  if (!is_finished_) abandon();
}

void FolderWriter::abandon() noexcept {
  discard(files_, root_ + "/" + partial_);
}

void FolderWriter::add(const std::string& name, const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  if (!pending_.empty() && pending_bytes_ + bytes > kShard) flush();
  index_.tensors.push_back({.name = name, .dtype = tensor.scalar_type(), .shape = tensor.sizes().vec()});
  pending_.push_back({.tensor = tensor.cpu().contiguous().view({-1})});
  pending_bytes_ += bytes;
}

void FolderWriter::flush() {
  if (pending_.empty()) return;
  std::vector<ShardDataset> datasets;
  std::vector<Write> writes;
  const size_t first = index_.tensors.size() - pending_.size();
  for (size_t i = 0; i < pending_.size(); ++i) {
    const SavedTensor& tensor = index_.tensors[first + i];
    datasets.push_back({piece_path(tensor.name, 0), tensor.dtype, pending_[i].tensor.numel()});
    writes.push_back({static_cast<int>(first + i), static_cast<int>(i), 0, whole_region(tensor.shape)});
  }
  ShardImage image(datasets);
  const std::string file = shard_file(static_cast<int64_t>(index_.shards.size()));
  with_disk_advice(
      [&] { add_shard(index_, file, write_shard(files_, root_ + "/" + partial_ + "/" + file, image, pending_), writes); });
  pending_.clear();
  pending_bytes_ = 0;
}

std::string FolderWriter::finish(const Value::Table& values) {
  flush();
  index_.values = values;
  io::write_small(files_, root_ + "/" + partial_ + "/" + kMaster, make_master(index_));
  const std::string folder = commit(files_, root_, partial_, step_);
  is_finished_ = true;
  retain(files_, root_, {});
  return folder;
}

}  // namespace zt::ckpt
