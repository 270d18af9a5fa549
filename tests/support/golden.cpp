#include "support/golden.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "zt/base/error.h"

namespace zt::test {

namespace {

at::ScalarType dtype_of(const std::string& code) {
  static const std::map<std::string, at::ScalarType> codes{
      {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}, {"I64", at::kLong},
      {"I32", at::kInt},    {"I16", at::kShort}, {"I8", at::kChar},  {"U8", at::kByte},       {"BOOL", at::kBool}};
  return codes.at(code);
}

}  // namespace

std::map<std::string, at::Tensor> golden(const std::string& name) {
  const std::string path = std::string(ZT_SOURCE_DIR) + "/tests/golden/" + name + ".safetensors";
  std::ifstream file(path, std::ios::binary);
  std::stringstream buffer;
  buffer << file.rdbuf();
  const std::string bytes = buffer.str();
  uint64_t header_size = 0;
  if (bytes.size() < sizeof(header_size)) fault("cannot read the golden file {}: make it with scripts/test.sh --oracle", path);
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  const char* data = bytes.data() + sizeof(header_size) + header_size;
  std::map<std::string, at::Tensor> tensors;
  const auto header = nlohmann::json::parse(bytes.substr(sizeof(header_size), header_size));
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    auto tensor = at::empty(entry["shape"].get<std::vector<int64_t>>(), dtype_of(entry["dtype"].get<std::string>()));
    std::memcpy(tensor.data_ptr(), data + entry["data_offsets"][0].get<uint64_t>(), tensor.nbytes());
    tensors[key] = tensor;
  }
  return tensors;
}

}  // namespace zt::test
