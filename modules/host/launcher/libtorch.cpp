#include "launcher/libtorch.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "zt/build_id.h"

namespace zt::host {

namespace {

namespace fs = std::filesystem;

constexpr const char* kWhatToDo =
    "\nSet ZT_TORCH_DIR to the folder of LibTorch " ZT_LIBTORCH_VERSION
    ", the one that holds lib/libtorch_cpu.so. Where Python has this version of PyTorch, the folder is what this prints:"
    "\n  python3 -c 'import torch; print(torch.__path__[0])'";

[[noreturn]] void fail(const std::string& problem) {
  throw std::runtime_error(problem + kWhatToDo);
}

// Returns the version, or an empty string. A wheel has a line of Python, __version__ = '2.11.0+cu130'. An archive of LibTorch has
// a file that holds only the version.
std::string version_of(const fs::path& torch) {
  std::string line;
  if (std::ifstream wheel(torch / "version.py"); wheel) {
    while (std::getline(wheel, line) && !line.starts_with("__version__")) {
    }
  } else {
    std::ifstream archive(torch / "build-version");
    std::getline(archive, line);
  }
  const size_t begin = line.find_first_of("0123456789");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_first_of("' \r", begin) - begin);
}

bool holds_libtorch(const fs::path& folder) {
  return fs::exists(folder / "lib/libtorch_cpu.so");
}

// Returns the folder, and for messages how it was found.
std::pair<fs::path, std::string> choose(const fs::path& root) {
  const char* named = std::getenv("ZT_TORCH_DIR");
  if (named && *named) {
    const std::string origin = std::string("ZT_TORCH_DIR=") + named;
    if (!holds_libtorch(named)) fail("LibTorch is not found: " + origin + " has no lib/libtorch_cpu.so.");
    return {named, origin};
  }
  const fs::path beside = root / "torch";
  if (!holds_libtorch(beside)) {
    fail("LibTorch is not found: ZT_TORCH_DIR is not set, and there is no " + (beside / "lib/libtorch_cpu.so").string() + ".");
  }
  return {beside, beside};
}

}  // namespace

fs::path find_libtorch(const fs::path& root) {
  const auto [folder, origin] = choose(root);
  const std::string version = version_of(folder);
  if (version.empty())
    fail("the version of LibTorch in " + origin + " is unknown: there is neither a version.py nor a build-version that says it.");
  if (version != ZT_LIBTORCH_VERSION) {
    fail("this ztoolkit was built with LibTorch " ZT_LIBTORCH_VERSION " and does not work with another version, but " + origin +
         " holds " + version + ".");
  }
  return fs::canonical(folder);
}

}  // namespace zt::host
