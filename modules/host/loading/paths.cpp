#include "paths.h"

#include <algorithm>
#include <filesystem>

namespace zt::host {

namespace fs = std::filesystem;

Paths Paths::find() {
  const fs::path executable = fs::canonical("/proc/self/exe");
  const fs::path root = executable.parent_path().parent_path();
  return {executable, root / "lib", root / "share/ztoolkit/lua"};
}

std::string Paths::command_file(const std::string& name) const {
  return fs::path(lua) / "zt/cmd" / (name + ".lua");
}

std::vector<std::string> Paths::commands() const {
  std::vector<std::string> names;
  std::error_code no_such_folder;
  for (const auto& entry : fs::directory_iterator(fs::path(lua) / "zt/cmd", no_such_folder)) {
    if (entry.path().extension() == ".lua") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace zt::host
