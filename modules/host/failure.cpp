#include "failure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

namespace zt::host {

namespace {

using namespace std::chrono_literals;

// Ranks as threads meet here.
bool first_in_process(const std::string& key) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  return seen.insert(key).second;
}

// Without a folder to meet in, each rank is the first.
bool first_on_machine(const std::string& key) {
  const std::string session = session_folder();
  if (session.empty()) return true;
  const std::string path = fmt::format("{}/ztoolkit-failure-{:016x}", session, std::hash<std::string>{}(key));
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return errno != EEXIST;
  close(file);
  return true;
}

}  // namespace

void report_once(const World& world, const std::string& key, const std::string& text) {
  if (!first_in_process(key)) return;
  if (world.launch != Launch::mpi || first_on_machine(key)) {
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", text);
  }
  // mpirun ends the others once this rank is gone: those that failed at the same time have something to say too.
  if (world.launch == Launch::mpi) std::this_thread::sleep_for(200ms);
}

void end_process_within(std::chrono::milliseconds limit, int status) {
  std::thread([limit, status] {
    std::this_thread::sleep_for(limit);
    _exit(status);
  }).detach();
}

void end_process(int status) {
  // A thread may hold a file's lock for good, and fflush would wait for it.
  end_process_within(1s, status);
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace zt::host
