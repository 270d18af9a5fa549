#include "failure.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "once.h"

namespace zt::host {

namespace {

using namespace std::chrono_literals;

volatile sig_atomic_t status_of_alarm = EXIT_FAILURE;

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
  return session.empty() || first_in_folder(session, key);
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
  try {
    std::thread([limit, status] {
      std::this_thread::sleep_for(limit);
      _exit(status);
    }).detach();
  } catch (const std::system_error&) {
    // No memory for a thread's stack (ulimit -v): the alarm needs none.
    status_of_alarm = status;
    struct sigaction action = {};
    action.sa_handler = [](int) { _exit(status_of_alarm); };
    sigaction(SIGALRM, &action, nullptr);
    const itimerval timer{.it_interval = {}, .it_value = {limit.count() / 1000, limit.count() % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
}

void end_process(int status) {
  // A thread may hold a file's lock for good, and fflush would wait for it.
  end_process_within(1s, status);
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace zt::host
