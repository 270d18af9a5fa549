// A folder on the machine's file system for one test.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace zt::io {

// A new folder below `where`. The destructor removes it with its content.
class TestFolder {
 public:
  explicit TestFolder(const std::string& where = std::filesystem::temp_directory_path()) : path_(where + "/io_XXXXXX") {
    if (!mkdtemp(path_.data())) throw std::runtime_error("cannot make " + path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file. Returns its path.
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(*this / name, std::ios::binary).rdbuf();
    return text.str();
  }
  // Returns the names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace zt::io
