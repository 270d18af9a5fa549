#include "failure.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>

#include "once.h"

namespace zt::host {

namespace {

using namespace std::chrono_literals;

volatile sig_atomic_t status_of_alarm = EXIT_FAILURE;

// Returns whether this is the first call with `key`. The ranks that are threads of this process share the set.
bool is_first_in_process(const std::string& key) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  return seen.insert(key).second;
}

// Returns whether no other process of this run and machine has claimed `key`. Without a session folder every rank is the first.
bool is_first_on_machine(const std::string& key) {
  const std::string session = session_folder();
  return session.empty() || first_in_folder(session, key);
}

// Removes "rank 1 of 'dp' failed: " from the message of a rank that has learnt of another one's failure. Returns whether it was
// there.
bool remove_peer(std::string& message) {
  constexpr std::string_view kOf = " of '", kFailed = "' failed: ";
  for (size_t begin = message.find("rank "); begin != std::string::npos; begin = message.find("rank ", begin + 1)) {
    const size_t number = begin + 5, after = message.find_first_not_of("0123456789", number);
    if (after == number || after == std::string::npos || message.compare(after, kOf.size(), kOf) != 0) continue;
    const size_t end = message.find(kFailed, after);
    if (end == std::string::npos || message.find('\'', after + kOf.size()) != end) continue;
    message.erase(begin, end + kFailed.size() - begin);
    return true;
  }
  return false;
}

}  // namespace

void report_once(const World& world, const std::string& message, const std::string& text) {
  std::string key = message;
  if (remove_peer(key)) std::this_thread::sleep_for(100ms);  // the rank that failed itself has the better traceback
  if (!is_first_in_process(key)) return;
  if (world.launch != Launch::mpi || is_first_on_machine(key)) {
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", text);
  }
  // mpirun ends the other ranks once this one is gone. Ranks that failed at the same time need time to print their reports.
  if (world.launch == Launch::mpi) std::this_thread::sleep_for(200ms);
}

void end_process_within(std::chrono::milliseconds limit, int status) {
  try {
    std::thread([limit, status] {
      std::this_thread::sleep_for(limit);
      _exit(status);
    }).detach();
  } catch (const std::system_error&) {
    // There is no memory for a thread's stack (ulimit -v). A timer signal needs no memory.
    status_of_alarm = status;
    struct sigaction action = {};
    action.sa_handler = [](int) { _exit(status_of_alarm); };
    sigaction(SIGALRM, &action, nullptr);
    const itimerval timer{.it_interval = {}, .it_value = {limit.count() / 1000, limit.count() % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
}

void leave_process(int status) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(status);  // reports come at the exit
#else
  std::fflush(nullptr);
  _exit(status);
#endif
}

void end_process(int status) {
  // fflush waits for file locks, and a thread may hold one forever.
  end_process_within(1s, status);
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace zt::host
