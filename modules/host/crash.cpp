#include "crash.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "zt/process/emergency.h"

namespace zt::host {

namespace {

constexpr int kMostFrames = 64;
constexpr int kMoments = 100;  // of 10 ms, for the emergency actions
constexpr unsigned kMostSeconds = 3;
constexpr size_t kStackBytes = size_t{64} << 10;

struct Crash {
  int signal;
  const char* name;
};
constexpr std::array<Crash, 5> kCrashes{{{SIGSEGV, "segmentation fault (SIGSEGV)"},
                                         {SIGBUS, "bus error (SIGBUS)"},
                                         {SIGFPE, "arithmetic error (SIGFPE)"},
                                         {SIGILL, "illegal instruction (SIGILL)"},
                                         {SIGABRT, "abort (SIGABRT)"}}};

int crashed_rank = -1;
char who[64] = "ztoolkit";
void (*wake_watcher)() = nullptr;
std::atomic<bool> is_crashing{false}, is_answered{false};
std::atomic<const char*> crash_name{nullptr};

void say(std::string_view text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

void sleep_moment() {
  const timespec moment{0, 10'000'000};
  nanosleep(&moment, nullptr);
}

// Only what a signal handler may do, but for the names of the stack's functions, for which the loader's lock is taken.
void on_crash(int signal) {
  // Whatever goes wrong in here, SIGALRM ends the process.
  alarm(kMostSeconds);
  // A second thread that crashes waits for the end that the first one brings.
  while (is_crashing.exchange(true)) sleep_moment();
  const char* name = "";
  for (const Crash& crash : kCrashes) {
    if (crash.signal == signal) name = crash.name;
  }
  for (const std::string_view part : {std::string_view(who), std::string_view(" crashed: "), std::string_view(name)}) say(part);
  say("\n");
  std::array<void*, kMostFrames> frames;
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kMostFrames), STDERR_FILENO);
  crash_name = name;
  wake_watcher();
  for (int i = 0; i < kMoments && !is_answered; ++i) sleep_moment();
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void watch_crashes(const World& place, void (*wake)()) {
  wake_watcher = wake;
  if (place.launch == Launch::mpi) {
    crashed_rank = place.rank;
    std::snprintf(who, sizeof(who), "ztoolkit: rank %d", place.rank);
  }
  // The first call loads a library, which a handler may not.
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);
  // Handlers run on a stack of their own: a stack that overflowed has no room, and a library's kernel may use the stack pointer
  // for something else. This serves the main thread, whose stack scripts overflow and which gets the process's signals.
  static std::array<char, kStackBytes> stack;
  const stack_t alternative{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  sigaltstack(&alternative, nullptr);
  for (const Crash& crash : kCrashes) {
    struct sigaction action = {};
    if (sigaction(crash.signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    for (const Crash& other : kCrashes) sigaddset(&action.sa_mask, other.signal);
    sigaction(crash.signal, &action, nullptr);
  }
}

void answer_crash() {
  const char* name = crash_name.exchange(nullptr);
  if (!name) return;
  run_emergency_actions({Emergency::Kind::crashed, crashed_rank, name});
  is_answered = true;
}

}  // namespace zt::host
