// The index of a model in several safetensors files, as Hugging Face writes it: NAME.safetensors.index.json says which tensor is
// in which file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zt::ckpt::safetensors {

// What the index of a model says.
struct FileIndex {
  std::map<std::string, std::string> files;  // tensor -> file in the index's folder
  int64_t total_bytes = 0;                   // of all tensors; 0 if the index does not say. Writers count it differently

  bool operator==(const FileIndex&) const = default;
};

// Throws a Fault, naming `path`, for text that is no JSON, has a key twice, has no weight_map, or names a file outside the
// index's folder.
FileIndex parse_index(std::string_view text, const std::string& path);
std::string make_index(const FileIndex& index);

// Divides tensors of these sizes among files. Returns the tensors' positions in `bytes` per file. Tensors keep their order, and a
// file takes the next tensor unless it would exceed `most` bytes of data. A larger tensor has its own file, which takes only
// empty tensors besides. Throws Misuse if `most` is not above 0.
std::vector<std::vector<size_t>> split(std::span<const int64_t> bytes, int64_t most);

// Returns "model.safetensors" for a single file, otherwise "model-00001-of-00003.safetensors". file: from 0.
std::string file_name(const std::string& stem, size_t file, size_t files);

}  // namespace zt::ckpt::safetensors
