// Reads and writes models in safetensors files: one file, or several with an index as Hugging Face writes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "safetensors.h"
#include "zt/io/file_system.h"

namespace zt::ckpt::safetensors {

// All tensors of a model on disk. Throws a Fault that names the file and the problem.
class ModelFiles {
 public:
  // path: a .safetensors file, a .safetensors.index.json, or a folder with one of them. If a folder has several, reads the one
  // named "model".
  ModelFiles(io::FileSystem& files, const std::string& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  at::Tensor read(const std::string& name) const;  // throws Misuse for an unknown name

 private:
  void add_file(const std::string& path);
  void add_index(const std::string& path);

  io::FileSystem& files_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> paths_;  // tensor -> path of its file
};

// Returns the values of a tensor to write, of the announced dtype and shape. Called once per tensor, one after the other.
using Provider = std::function<at::Tensor(const std::string& name)>;

// Returns the tensors' names in the order in which write_model calls its provider.
std::vector<std::string> write_order(const std::string& path, const std::vector<Tensor>& tensors, int64_t most);

// Writes a model and returns the paths of the files. If `path` ends in ".safetensors", it is the one file. Otherwise it is a
// folder, made if missing: the model goes into model.safetensors or, if that would have more than `most` bytes of tensors, into
// several files and their index. Holds one tensor in memory at a time. Files get their names after all of them are complete.
//
// existing: what to do if a model is there already. refuse: throws a Fault before anything is written. replace: removes its files
// after the new ones are complete. A crash in between leaves files without their index, which ModelFiles refuses.
enum class Existing : uint8_t { refuse, replace };
std::vector<std::string> write_model(io::FileSystem& files, const std::string& path, const std::vector<Tensor>& tensors,
                                     int64_t most, const Provider& provider, Existing existing = Existing::refuse);

}  // namespace zt::ckpt::safetensors
