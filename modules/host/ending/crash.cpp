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
constexpr int kMostSleeps = 100;      // of 10 ms: how long the emergency actions may take
constexpr unsigned kMostSeconds = 3;  // how long the whole handler may take
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
char process_name[64] = "ztoolkit";
void (*wake_watcher)() = nullptr;
std::atomic<bool> is_crashing{false}, is_answered{false};
std::atomic<const char*> crash_name{nullptr};

void write_error(std::string_view text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

void sleep_10_ms() {
  const timespec duration{0, 10'000'000};
  nanosleep(&duration, nullptr);
}

// Async-signal-safe, except that looking up the names of the stack's functions takes the loader's lock.
void on_crash(int signal) {
  // SIGALRM ends the process if this handler hangs.
  alarm(kMostSeconds);
  // If a second thread crashes, it waits here until the first ends the process.
  while (is_crashing.exchange(true)) sleep_10_ms();
  const char* name = "";
  for (const Crash& crash : kCrashes) {
    if (crash.signal == signal) name = crash.name;
  }
  for (const std::string_view part :
       {std::string_view(process_name), std::string_view(" crashed: "), std::string_view(name), std::string_view("\n")}) {
    write_error(part);
  }
  std::array<void*, kMostFrames> frames;
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kMostFrames), STDERR_FILENO);
  crash_name = name;
  wake_watcher();
  for (int i = 0; i < kMostSleeps && !is_answered; ++i) sleep_10_ms();
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void watch_crashes(const World& world, void (*wake)()) {
  wake_watcher = wake;
  if (world.launch == Launch::mpi) {
    crashed_rank = world.rank;
    std::snprintf(process_name, sizeof(process_name), "ztoolkit: rank %d", world.rank);
  }
  // The first call of backtrace loads a library, and a signal handler must not do that.
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

void run_crash_actions() {
  const char* name = crash_name.exchange(nullptr);
  if (!name) return;
  run_emergency_actions({Emergency::Kind::crashed, crashed_rank, name});
  is_answered = true;
}

}  // namespace zt::host
