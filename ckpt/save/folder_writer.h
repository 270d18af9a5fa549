// A checkpoint that one process writes tensor by tensor, such as one converted from another format.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "format/index.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// Holds tensors until they are worth a shard, so it needs memory for kShard bytes or one tensor.
class FolderWriter {
 public:
  static constexpr int64_t kShard = int64_t{1} << 30;  // bytes

  FolderWriter(io::FileSystem& files, std::string root, int64_t step);
  ~FolderWriter();  // removes what was written unless it was finished
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  void add(const std::string& name, const at::Tensor& tensor);  // keeps the tensor, which must not change until finish()
  // Commits the checkpoint; returns its folder. Fault when it cannot be written, Misuse for a name that occurs twice.
  std::string finish(const Value::Table& values);
  // Removes what was written, after which nothing more may be added. Not while finish() runs.
  void abandon() noexcept;

 private:
  void flush();

  io::FileSystem& files_;
  const std::string root_, partial_;
  const int64_t step_;
  Index index_;
  std::vector<at::Tensor> pending_;  // flat, the last ones of the index
  int64_t pending_bytes_ = 0;
  bool is_finished_ = false;
};

}  // namespace zt::ckpt
