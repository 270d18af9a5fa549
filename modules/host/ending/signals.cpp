#include "signals.h"

#include <fmt/format.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "crash.h"
#include "failure.h"
#include "zt/process/emergency.h"

namespace zt::host {

namespace {

using namespace std::chrono_literals;

// Time for emergency actions. It is short because mpirun kills its ranks soon after its SIGTERM.
constexpr auto kEndTimeLimit = 500ms;

sem_t arrived;
std::atomic<int> ending_signal{0};
std::atomic<int> report_requests{0};  // by SIGUSR1
bool is_under_mpirun = false;         // mpirun kills its ranks two seconds after its SIGTERM: too soon to save a checkpoint

bool may_stop_by_itself(int signal) {
  return signal == SIGUSR2 || (signal == SIGTERM && !is_under_mpirun);
}

void on_signal(int signal) {
  const int saved_errno = errno;
  if (signal == SIGUSR1) ++report_requests;
  else if (!may_stop_by_itself(signal) || !request_stop()) ending_signal = signal;
  sem_post(&arrived);
  errno = saved_errno;
}

// Flushes `stream` unless another thread holds its lock: that thread may be blocked in a write.
void flush_if_free(FILE* stream) {
  if (ftrylockfile(stream) != 0) return;
  fflush_unlocked(stream);
  funlockfile(stream);
}

const char* name_of(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGUSR2";
}

[[noreturn]] void end_by(int signal, Announce announce) {
  end_process_within(kEndTimeLimit, 128 + signal);
  run_emergency_actions({Emergency::Kind::told_to_end, -1, name_of(signal)});
  flush_if_free(stdout);
  if (announce == Announce::yes && signal == SIGINT) {
    constexpr char kMessage[] = "interrupted\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  }
  _exit(128 + signal);
}

[[noreturn]] void watch(Announce announce) {
  for (;;) {
    while (sem_wait(&arrived) != 0) {
    }
    if (ending_signal != 0) end_by(ending_signal, announce);
    run_crash_actions();
    // On a thread of its own, because the actions may hang (a file system that is gone) and this thread must see later signals.
    if (report_requests.exchange(0) > 0) {
      std::thread([] { run_emergency_actions({Emergency::Kind::asked, -1, "SIGUSR1"}); }).detach();
    }
  }
}

void handle(int signal) {
  struct sigaction action = {};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(signal, &action, nullptr);
}

}  // namespace

// The handler wakes a thread. Blocking the signals and calling sigwait would be simpler, but a blocked signal stays blocked in
// the processes that a script starts, and Ctrl-C would not end them.
void watch_signals(Announce announce, const World& world) {
  sem_init(&arrived, 0, 0);
  is_under_mpirun = world.launch == Launch::mpi;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) handle(signal);
  watch_crashes(world, [] { sem_post(&arrived); });
  std::thread(watch, announce).detach();
}

}  // namespace zt::host
