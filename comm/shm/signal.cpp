#include "shm/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace zt::comm {

namespace {

constexpr int kLongSpins = 4000;  // about 100 us; a wake-up from sleep costs half of that
constexpr int kShortSpins = 100;
constexpr int kNapMilliseconds = 20;

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
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(value_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Signal::sleep(uint32_t seen, int milliseconds) {
  const timespec timeout{milliseconds / 1000, milliseconds % 1000 * 1000000L};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (value_.load(std::memory_order_seq_cst) == seen) futex(value_, FUTEX_WAIT, seen, &timeout);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void await(Signal& signal, uint32_t wanted, Spin spin, const std::function<void()>& tick) {
  const int spins = spin == Spin::long_enough ? kLongSpins : kShortSpins;
  for (int i = 0; i < spins; ++i) {
    if (signal.has_reached(wanted)) return;
    relax();
  }
  for (;;) {
    const uint32_t seen = signal.value();
    if (signal.has_reached(wanted)) return;
    signal.sleep(seen, kNapMilliseconds);
    if (signal.has_reached(wanted)) return;
    tick();
  }
}

}  // namespace zt::comm
