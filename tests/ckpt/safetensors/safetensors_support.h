// Makes the bytes of safetensors files for tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "safetensors/safetensors.h"

namespace zt::test {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// Reads tests/golden/huggingface/NAME.
inline std::string golden_text(const std::string& name) {
  std::ifstream file(fmt::format("{}/tests/golden/huggingface/{}", ZT_SOURCE_DIR, name), std::ios::binary);
  EXPECT_TRUE(file) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline Bytes golden_bytes(const std::string& name) {
  return bytes_of(golden_text(name));
}

// Returns the header of a file with this JSON.
inline Bytes head(const std::string& json) {
  const uint64_t length = json.size();
  const std::string prefix(reinterpret_cast<const char*>(&length), ckpt::safetensors::kPrefix);
  return bytes_of(prefix + json);
}

}  // namespace zt::test
