#include "signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace zt::comm {

namespace {

constexpr int kLongSpins = 4000;  // about 100 us; a wake-up from sleep costs half of that
constexpr int kShortSpins = 100;
constexpr timespec kNap{0, 20'000'000};

std::atomic<int> ranks_here{1};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Signal::raise(uint32_t value) {
  // Sequentially consistent, like the first steps of `sleep`: the sleeper sees the value, or this thread sees the sleeper.
  value_.store(value, std::memory_order_seq_cst);
  wake();
}

void Signal::advance() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  wake();
}

void Signal::wake() {
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(value_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Signal::sleep(uint32_t seen) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (value_.load(std::memory_order_seq_cst) == seen) futex(value_, FUTEX_WAIT, seen, &kNap);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void set_ranks_here(int ranks) {
  ranks_here = ranks;
}

Spin spin_for(WaitPolicy::Style style) {
  static const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return style == WaitPolicy::Style::caller && cores >= ranks_here ? Spin::long_enough : Spin::briefly;
}

bool poll(const Signal& signal, uint32_t wanted, Spin spin) {
  const int spins = spin == Spin::long_enough ? kLongSpins : kShortSpins;
  for (int i = 0; i < spins; ++i) {
    if (signal.has_reached(wanted)) return true;
    relax();
  }
  return false;
}

void await(Signal& signal, uint32_t wanted, Spin spin, const std::function<void()>& tick) {
  if (poll(signal, wanted, spin)) return;
  for (;;) {
    const uint32_t seen = signal.value();
    if (signal.has_reached(wanted)) return;
    signal.sleep(seen);
    if (signal.has_reached(wanted)) return;
    tick();
  }
}

}  // namespace zt::comm
