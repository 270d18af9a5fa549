// The safetensors format (huggingface/safetensors, "Format"): reads and writes the header of a file. No I/O.
//
//   file   = length data-of-header data      length: u64, little-endian
//   header = {"__metadata__": {string: string}, NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// Offsets count from the end of the header. Tensors lie one after the other, row-major, little-endian, and fill the file.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace zt::ckpt::safetensors {

inline constexpr int64_t kPrefix = 8;               // bytes of the length
inline constexpr int64_t kMaxHeader = 100'000'000;  // bytes of a header: the reference reader's limit

struct Tensor {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes [begin, end) of the file

  bool operator==(const Tensor&) const = default;
};

// What the header of a file says.
struct FileHeader {
  std::vector<Tensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;

  bool operator==(const FileHeader&) const = default;
};

// Returns the bytes that parse_header needs of a file. prefix: its first kPrefix bytes, or all of a shorter file. Throws a Fault,
// naming `path`, if the header would be longer than kMaxHeader or than the file.
int64_t header_bytes(std::span<const std::byte> prefix, int64_t file_bytes, const std::string& path);

// Returns the header of a file of `file_bytes` bytes. head: its first header_bytes() bytes or more. Throws a Fault, naming
// `path` and the tensor, unless the header is such JSON, no key occurs twice, types are F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL,
// sizes agree with shapes, and the tensors fill the rest of the file without overlaps and gaps. Memory: about twenty times the
// header.
FileHeader parse_header(std::span<const std::byte> head, int64_t file_bytes, const std::string& path);

// Returns the first bytes of a file of these tensors, a multiple of 8. Sorts the tensors as the reference writer does: by type,
// descending by size (which aligns them), then by name. Sets begin and end; the last end is the file's size. Throws Misuse for a
// name that occurs twice, the name "__metadata__", text that is not UTF-8, another dtype, and sizes that 64 bits cannot count.
std::vector<std::byte> make_header(FileHeader& header);

// Returns the bytes of a tensor's elements. Throws Misuse for a negative size or if 64 bits cannot count the bytes.
int64_t tensor_bytes(const Tensor& tensor);

}  // namespace zt::ckpt::safetensors
