#include "signals.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace zt::host {

namespace {

sem_t arrived;
volatile sig_atomic_t arrived_signal = 0;

void on_signal(int signal) {
  const int saved_errno = errno;
  arrived_signal = signal;
  sem_post(&arrived);
  errno = saved_errno;
}

// The exit must not wait for a thread that holds the stream's lock in a blocked write.
void flush_if_free(FILE* stream) {
  if (ftrylockfile(stream) != 0) return;
  fflush_unlocked(stream);
  funlockfile(stream);
}

[[noreturn]] void watch(Announce announce) {
  while (sem_wait(&arrived) != 0) {
  }
  flush_if_free(stdout);
  if (announce == Announce::yes && arrived_signal == SIGINT) {
    constexpr char kMessage[] = "interrupted\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  }
  _exit(128 + arrived_signal);
}

void handle(int signal) {
  struct sigaction action = {};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

// A handler that wakes a thread, and not blocked signals with sigwait: a blocked signal stays blocked in the programs that
// a script starts, and Ctrl-C would then leave them behind.
void watch_signals(Announce announce) {
  sem_init(&arrived, 0, 0);
  handle(SIGINT);
  handle(SIGTERM);
  std::thread(watch, announce).detach();
}

}  // namespace zt::host
