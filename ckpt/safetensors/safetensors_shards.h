// Models in several safetensors files, as Hugging Face writes them: NAME.safetensors.index.json says which tensor is in which
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zt::ckpt::safetensors {

struct Index {
  std::map<std::string, std::string> files;  // tensor -> file beside the index
  int64_t total_bytes = 0;                   // of all tensors; 0 where an index does not say. Writers count it differently

  bool operator==(const Index&) const = default;
};

// Fault, naming `path`, for what is no JSON, has a key twice, has no weight_map, or names a file that is not one beside the
// index.
Index parse_index(std::string_view text, const std::string& path);
std::string make_index(const Index& index);

// Places in `bytes` for each file: tensors keep their order, and a file takes the next one unless it would have more than
// `most` bytes of data. A tensor of more has a file of its own, but for empty ones behind it. Misuse if `most` is not above 0.
std::vector<std::vector<size_t>> split(std::span<const int64_t> bytes, int64_t most);

// "model.safetensors" for the one file there is, otherwise "model-00001-of-00003.safetensors". file: from 0.
std::string file_name(const std::string& stem, size_t file, size_t files);

}  // namespace zt::ckpt::safetensors
