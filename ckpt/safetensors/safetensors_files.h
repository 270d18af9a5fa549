// Models in safetensors files on a disk: one file, or several with an index as Hugging Face writes them.
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

// All tensors of a model. Errors: Fault that names the file and what in it is wrong.
class Model {
 public:
  // path: a .safetensors file, a .safetensors.index.json, or a folder with one of them (of several files "model" is meant).
  Model(io::FileSystem& files, const std::string& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  at::Tensor read(const std::string& name) const;  // Misuse for a name that is none of its tensors'

 private:
  void add_file(const std::string& path);
  void add_index(const std::string& path);

  io::FileSystem& files_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> paths_;  // of the file that has a tensor
};

// Gives the values of a tensor to write, of its dtype and shape. Asked for each tensor once, one after the other.
using Provider = std::function<at::Tensor(const std::string& name)>;

// The order in which write_model asks for tensors' values.
std::vector<std::string> write_order(const std::string& path, const std::vector<Tensor>& tensors, int64_t most);

// Writes a model: as the file `path` where that ends in ".safetensors", otherwise into the folder `path`, which is made, as
// model.safetensors or, where that would have more than `most` bytes of tensors, as several files and their index. Holds one
// tensor at a time. A file has its name only when all files are complete. Returns the paths of what was written.
//
// existing: of an earlier model at that place. refuse: Fault before anything is written. replace: its files go once the new ones
// are complete. A crash between leaves files without their index, which reading refuses.
enum class Existing : uint8_t { refuse, replace };
std::vector<std::string> write_model(io::FileSystem& files, const std::string& path, const std::vector<Tensor>& tensors,
                                     int64_t most, const Provider& provider, Existing existing = Existing::refuse);

}  // namespace zt::ckpt::safetensors
