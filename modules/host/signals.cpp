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

// mpirun kills what is left soon after its SIGTERM.
constexpr auto kLastWords = 500ms;

sem_t arrived;
std::atomic<int> ending_signal{0};
std::atomic<int> questions{0};
bool is_under_mpirun = false;  // which kills its ranks two seconds after its SIGTERM: too soon to save anything

bool may_stop_by_itself(int signal) {
  return signal == SIGUSR2 || (signal == SIGTERM && !is_under_mpirun);
}

void on_signal(int signal) {
  const int saved_errno = errno;
  if (signal == SIGUSR1) ++questions;
  else if (!may_stop_by_itself(signal) || !request_stop()) ending_signal = signal;
  sem_post(&arrived);
  errno = saved_errno;
}

// The exit must not wait for a thread that holds the stream's lock in a blocked write.
void flush_if_free(FILE* stream) {
  if (ftrylockfile(stream) != 0) return;
  fflush_unlocked(stream);
  funlockfile(stream);
}

const char* name_of(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGUSR2";
}

[[noreturn]] void end_by(int signal, Announce announce) {
  end_process_within(kLastWords, 128 + signal);
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
    answer_crash();
    // Should the answer hang (a file system that is gone), an end still has to be possible.
    if (questions.exchange(0) > 0) std::thread([] { run_emergency_actions({Emergency::Kind::asked, -1, "SIGUSR1"}); }).detach();
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

// A handler that wakes a thread, and not blocked signals with sigwait: a blocked signal stays blocked in the programs that
// a script starts, and Ctrl-C would then leave them behind.
void watch_signals(Announce announce, const World& place) {
  sem_init(&arrived, 0, 0);
  is_under_mpirun = place.launch == Launch::mpi;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) handle(signal);
  watch_crashes(place, [] { sem_post(&arrived); });
  std::thread(watch, announce).detach();
}

}  // namespace zt::host
