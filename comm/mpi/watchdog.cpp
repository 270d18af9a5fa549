#include "mpi/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "zt/emergency.h"

namespace zt::comm {

namespace {

constexpr std::chrono::milliseconds kLastWords(1500);

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds limit, std::string waits_for)
    : thread_([this, limit, waits_for = std::move(waits_for)] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit, [&] { return is_over_; })) return;
        const std::string said = fmt::format(
            "communication timed out after {} s: {}. Did one fail, or take another path? If it only needs longer: "
            "comm.mesh{{..., timeout = seconds}}",
            std::chrono::duration<double>(limit).count(), waits_for);
        fmt::print(stderr, "ztoolkit: {}\n", said);
        std::thread([] {
          std::this_thread::sleep_for(kLastWords);
          _exit(1);
        }).detach();
        run_emergency_actions({Emergency::Kind::failed, -1, said});
        _exit(1);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace zt::comm
