// Writes a checkpoint from one process, tensor by tensor, for example one converted from another format.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "format/index.h"
#include "shard_writer.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// Keeps tensors in memory until they fill a shard, so it needs memory for kShard bytes or for one larger tensor.
class FolderWriter {
 public:
  static constexpr int64_t kShard = int64_t{1} << 30;  // bytes of tensors per shard

  FolderWriter(io::FileSystem& files, std::string root, int64_t step);
  ~FolderWriter();  // removes the folder unless finish() has succeeded
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  // Keeps a reference to the tensor, which must not change until finish(). May write a shard.
  void add(const std::string& name, const at::Tensor& tensor);
  // Commits the checkpoint and returns its folder. Throws a Fault if it cannot be written, Misuse for a name that occurs twice.
  std::string finish(const Value::Table& values);
  // Removes the folder. No tensor may be added after that. Must not be called while finish() runs.
  void abandon() noexcept;

 private:
  void flush();

  io::FileSystem& files_;
  const std::string root_, partial_;
  const int64_t step_;
  MasterIndex index_;
  std::vector<ShardData> pending_;  // flat tensors; the last tensors of the index, not yet written
  int64_t pending_bytes_ = 0;
  bool is_finished_ = false;
};

}  // namespace zt::ckpt
