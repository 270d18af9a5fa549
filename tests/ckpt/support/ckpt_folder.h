// A temporary folder for one test. The destructor removes it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace zt::test {

class CkptFolder {
 public:
  CkptFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "zt-ckpt-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~CkptFolder() { std::filesystem::remove_all(path_); }
  CkptFolder(const CkptFolder&) = delete;
  CkptFolder& operator=(const CkptFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace zt::test
