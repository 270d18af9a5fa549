// bin/ztoolkit of an installed tree: finds LibTorch, then executes libexec/ztoolkit, the host, in the same process. It links only
// to libraries that every system has.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "ending/once.h"
#include "zt/build_id.h"

namespace {

namespace fs = std::filesystem;
using namespace zt::host;
using namespace std::chrono_literals;

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

// Returns the folder of LibTorch for the installed tree `root`, with links resolved: the folder that ZT_TORCH_DIR names or, if
// that is not set, `root`/torch. Throws if there is no LibTorch, or another version than this tree was built with. The message
// says what to do.
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

// Makes the loader search this folder before those of the system.
void put_first_on_library_path(const std::string& folder) {
  if (folder.find_first_of(":;$") != std::string::npos) {
    throw std::runtime_error("the folder of LibTorch is " + folder +
                             ", and LD_LIBRARY_PATH cannot hold a path with ':', ';' or '$': move LibTorch to another folder");
  }
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string path = before && *before ? folder + ":" + before : folder;
  if (setenv("LD_LIBRARY_PATH", path.c_str(), 1) != 0) throw std::system_error(errno, std::generic_category(), "setenv");
}

// Does not return; throws if the host cannot be started. The host gets the same command line, which a run records.
void become_host(char** argv) {
  const fs::path root = fs::canonical("/proc/self/exe").parent_path().parent_path();
  put_first_on_library_path(find_libtorch(root) / "lib");
  const fs::path host = root / "libexec/ztoolkit";
  execv(host.c_str(), argv);
  throw std::system_error(errno, std::generic_category(), "cannot start " + host.string());
}

}  // namespace

int main(int, char** argv) {
  try {
    become_host(argv);
  } catch (const std::exception& error) {
    const char* session = std::getenv("PMIX_SERVER_TMPDIR");  // mpirun's folder, which all ranks of a machine share
    if (!session || first_in_folder(session, error.what())) std::fprintf(stderr, "ztoolkit: %s\n", error.what());
    // mpirun ends the other ranks once this one has ended. Ranks that fail at the same time get time for their messages.
    if (session) std::this_thread::sleep_for(200ms);
  }
  return EXIT_FAILURE;
}
