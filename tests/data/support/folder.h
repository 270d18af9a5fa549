// A temporary folder for the files of one test, and helpers that the tests of modules/data share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stream/stream.h"
#include "tokens/npy.h"

namespace zt::data {

// A new temporary folder. The destructor removes it with its content.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "zt-data-test-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return path_ / name; }
  // Writes a file. Returns its path.
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  // Writes a token file. Returns its path.
  std::string put_tokens(const std::string& name, const std::vector<int32_t>& tokens, NpyType type = NpyType::u16) const {
    NpyWriter writer(path_ / name, type);
    writer.append(tokens);
    writer.commit();
    return path_ / name;
  }
  // Returns the names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns 0, 1, 2, ..., n - 1: each token is its own index.
inline std::vector<int32_t> counting(int32_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = i;
  return tokens;
}

inline std::vector<int64_t> row(const at::Tensor& matrix, int64_t i) {
  const at::Tensor line = matrix[i].contiguous();
  return {line.data_ptr<int64_t>(), line.data_ptr<int64_t>() + line.numel()};
}

// Returns the message of the error of type E that `action` throws. Fails the test if it throws something else or nothing.
template <class E, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error was thrown: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace zt::data
