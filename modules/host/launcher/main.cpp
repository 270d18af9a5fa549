// bin/ztoolkit of an installed tree: finds LibTorch, then executes libexec/ztoolkit, the host, in the same process. It links only
// to libraries that every system has.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "ending/once.h"
#include "launcher/libtorch.h"

namespace {

namespace fs = std::filesystem;
using namespace zt::host;
using namespace std::chrono_literals;

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
