#include "safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "safetensors_json.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::ckpt::safetensors {

namespace {

using c10::ScalarType;
using nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr size_t kAlignment = 8;  // the data begin at a multiple of this many bytes

// In the order by which the reference writer sorts tensors, descending.
constexpr std::pair<const char*, ScalarType> kTypes[] = {
    {"BOOL", ScalarType::Bool},  {"U8", ScalarType::Byte},       {"I8", ScalarType::Char}, {"I16", ScalarType::Short},
    {"F16", ScalarType::Half},   {"BF16", ScalarType::BFloat16}, {"I32", ScalarType::Int}, {"F32", ScalarType::Float},
    {"F64", ScalarType::Double}, {"I64", ScalarType::Long}};

// Returns the position of the tensor's dtype in kTypes. Throws Misuse if it is not there.
size_t type_place(const Tensor& tensor) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& type) { return type.second == tensor.dtype; });
  if (found == std::end(kTypes)) {
    misuse("tensor {} is {}, which safetensors files cannot hold: convert it first", shown(tensor.name),
           dtype_name(tensor.dtype));
  }
  return found - std::begin(kTypes);
}

// Returns nullopt if 64 bits cannot count the bytes. Sizes of zero do not make that check pass: the strides of a tensor without
// elements must fit 64 bits, too.
std::optional<int64_t> count_bytes(const std::vector<int64_t>& shape, ScalarType dtype) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  bool is_empty = false;
  for (const int64_t size : shape) {
    is_empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) return {};
  }
  return is_empty ? 0 : bytes;
}

// Parses one file's header.
struct HeaderParser {
  const std::string& path;
  int64_t data_begin, file_bytes;

  FileHeader parse(std::string_view text) const {
    FileHeader header;
    const json root = parse_json(text, path);
    for (const auto& [name, value] : root.items()) {
      if (name == kMetadata) header.metadata = read_texts(value, kMetadata, path);
      else header.tensors.push_back(read_tensor(name, value));
    }
    std::ranges::sort(header.tensors, {}, [](const Tensor& each) { return std::tie(each.begin, each.end, each.name); });
    check_places(header.tensors);
    return header;
  }

  Tensor read_tensor(const std::string& name, const json& entry) const {
    if (!entry.is_object()) bad(name, "is no JSON object");
    for (const auto& [key, value] : entry.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") bad(name, fmt::format("has the unknown key {}", shown(key)));
    }
    Tensor tensor{name, read_type(name, entry), read_sizes(name, entry, "shape"), 0, 0};
    const auto offsets = read_sizes(name, entry, "data_offsets");
    if (offsets.size() != 2) bad(name, fmt::format("has {} data_offsets instead of begin and end", offsets.size()));
    const int64_t room = file_bytes - data_begin;
    if (offsets[0] > offsets[1] || offsets[1] > room) {
      bad(name, fmt::format("has bytes {} to {} of the {} bytes after the header", offsets[0], offsets[1], room));
    }
    tensor.begin = data_begin + offsets[0];
    tensor.end = data_begin + offsets[1];
    const auto bytes = count_bytes(tensor.shape, tensor.dtype);
    if (!bytes) {
      bad(name, fmt::format("has the shape [{}], whose sizes multiply to more bytes of {} than 64 bits can count",
                            fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype)));
    }
    if (*bytes != tensor.end - tensor.begin) {
      bad(name, fmt::format("has {} bytes, but {}[{}] needs {}", tensor.end - tensor.begin, dtype_name(tensor.dtype),
                            fmt::join(tensor.shape, ", "), *bytes));
    }
    return tensor;
  }

  ScalarType read_type(const std::string& name, const json& entry) const {
    const auto found = entry.find("dtype");
    if (found == entry.end() || !found->is_string()) bad(name, "has no dtype");
    const auto& wanted = found->get_ref<const std::string&>();
    for (const auto& [type, dtype] : kTypes) {
      if (wanted == type) return dtype;
    }
    unsupported(name, wanted);
  }

  // The file may well be valid, so it is not called damaged.
  [[noreturn]] void unsupported(const std::string& name, const std::string& dtype) const {
    std::vector<std::string_view> known;
    for (const auto& type : kTypes) known.emplace_back(type.first);
    fault(
        "cannot read '{}': its tensor {} has the dtype {}, which is not supported. Supported are {}. Convert the tensor to one "
        "of them where the file was made, for instance with tensor.to(torch.float32) in PyTorch, and save the file again",
        path, shown(name), shown(dtype), fmt::join(known, ", "));
  }

  std::vector<int64_t> read_sizes(const std::string& name, const json& entry, const char* key) const {
    const auto found = entry.find(key);
    if (found == entry.end() || !found->is_array()) bad(name, fmt::format("has no list of {}", key));
    std::vector<int64_t> sizes;
    for (const json& size : *found) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) bad(name, fmt::format("has a wrong number in {}", key));
      sizes.push_back(size.get<int64_t>());
    }
    return sizes;
  }

  // Checks that tensors, sorted by their data's position, fill the file.
  void check_places(const std::vector<Tensor>& tensors) const {
    int64_t at = data_begin;
    for (const Tensor& tensor : tensors) {
      if (tensor.begin < at) bad(tensor.name, fmt::format("begins at byte {}, inside the tensor before it", tensor.begin));
      const int64_t unused = tensor.begin - at;
      if (unused > 0) bad(tensor.name, fmt::format("begins at byte {}, after {} bytes of no tensor", tensor.begin, unused));
      at = tensor.end;
    }
    if (at != file_bytes) damaged(path, fmt::format("its tensors end at byte {}, the file has {}", at, file_bytes));
  }

  [[noreturn]] void bad(const std::string& name, const std::string& what) const {
    damaged(path, fmt::format("tensor {} {}", shown(name), what));
  }
};

// Returns a value as JSON text. Throws Misuse for text that is not UTF-8.
std::string written(const json& value) {
  try {
    return value.dump();
  } catch (const json::type_error& error) {
    misuse("safetensors: names and metadata must be UTF-8 ({})", shown(error.what()));
  }
}

// Returns the JSON, padded with spaces to align the data. Sets begin and end as offsets from the end of the header.
std::string header_text(FileHeader& header) {
  std::vector<std::string> lines;
  if (!header.metadata.empty()) lines.push_back(fmt::format("\"{}\":{}", kMetadata, written(header.metadata)));
  int64_t at = 0;
  std::set<std::string_view> names{kMetadata};
  for (Tensor& tensor : header.tensors) {
    if (!names.insert(tensor.name).second) misuse("safetensors: the name {} occurs twice or is reserved", shown(tensor.name));
    tensor.begin = at;
    if (__builtin_add_overflow(at, tensor_bytes(tensor), &at)) misuse("safetensors: 64 bits cannot count all tensors' bytes");
    tensor.end = at;
    lines.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", written(tensor.name),
                                kTypes[type_place(tensor)].first, fmt::join(tensor.shape, ","), tensor.begin, tensor.end));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(lines, ","));
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

}  // namespace

int64_t header_bytes(std::span<const std::byte> prefix, int64_t file_bytes, const std::string& path) {
  if (file_bytes < kPrefix) damaged(path, fmt::format("it has only {} bytes", file_bytes));
  if (prefix.size() < kPrefix) misuse("safetensors: give the first {} bytes of '{}', not {}", kPrefix, path, prefix.size());
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), sizeof(length));
  if (length > kMaxHeader) damaged(path, fmt::format("its header would have {} bytes, at most {} are read", length, kMaxHeader));
  const int64_t all = kPrefix + static_cast<int64_t>(length);
  if (all > file_bytes) damaged(path, fmt::format("its header would end at byte {}, the file has {}", all, file_bytes));
  return all;
}

FileHeader parse_header(std::span<const std::byte> head, int64_t file_bytes, const std::string& path) {
  const int64_t all = header_bytes(head, file_bytes, path);
  if (std::ssize(head) < all) misuse("safetensors: give the first {} bytes of '{}', not {}", all, path, head.size());
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kPrefix, all - kPrefix);
  return HeaderParser{path, all, file_bytes}.parse(text);
}

int64_t tensor_bytes(const Tensor& tensor) {
  const bool is_negative = std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size < 0; });
  const auto bytes = is_negative ? std::nullopt : count_bytes(tensor.shape, tensor.dtype);
  if (!bytes) misuse("tensor {} cannot have the shape [{}]", shown(tensor.name), fmt::join(tensor.shape, ", "));
  return *bytes;
}

std::vector<std::byte> make_header(FileHeader& header) {
  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    const size_t of_a = type_place(a), of_b = type_place(b);
    return of_a != of_b ? of_a > of_b : a.name < b.name;
  });
  const std::string text = header_text(header);
  if (std::ssize(text) > kMaxHeader) {
    misuse("safetensors: the names of {} tensors take {} bytes, readers take at most {}: split them over several files",
           tensors.size(), text.size(), kMaxHeader);
  }
  for (Tensor& tensor : tensors) {
    tensor.begin += kPrefix + std::ssize(text);
    tensor.end += kPrefix + std::ssize(text);
  }
  const uint64_t length = text.size();
  std::vector<std::byte> bytes(kPrefix + length);
  std::memcpy(bytes.data(), &length, kPrefix);
  std::memcpy(bytes.data() + kPrefix, text.data(), length);
  return bytes;
}

}  // namespace zt::ckpt::safetensors
