#include "mpi/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "recorder/ended.h"
#include "zt/process/emergency.h"

namespace zt::comm {

namespace {

constexpr std::chrono::milliseconds kReportLimit(1500);  // for the emergency actions, before the process ends
constexpr std::chrono::milliseconds kBetweenEndChecks(250);
constexpr const char* kAdvice =
    "Did a rank fail, or make other calls? If the ranks only need longer: comm.mesh{..., timeout = seconds}";

[[noreturn]] void end_process(const std::string& said) {
  fmt::print(stderr, "ztoolkit: {}\n", said);
  std::thread([] {
    std::this_thread::sleep_for(kReportLimit);
    _exit(1);
  }).detach();
  run_emergency_actions({Emergency::Kind::failed, -1, said});
  _exit(1);
}

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds limit, std::string waits_for, Group group)
    : thread_([this, limit, waits_for = std::move(waits_for), group = std::move(group)] {
        const std::string why = find_reason(limit, group);
        if (!why.empty()) end_process(fmt::format("{}: {}. {}", why, waits_for, kAdvice));
      }) {}

// Returns why the process must end; empty if the call has returned.
std::string Watchdog::find_reason(std::chrono::milliseconds limit, const Group& group) {
  EndWatch watch(group, -1, nullptr);
  const auto until = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto look = std::min(until, std::chrono::steady_clock::now() + kBetweenEndChecks);
    if (changed_.wait_until(lock, look, [&] { return is_over_; })) return "";
    if (std::chrono::steady_clock::now() >= until)
      return fmt::format("communication timed out after {} s", std::chrono::duration<double>(limit).count());
    try {
      watch.look();
    } catch (const PeersEnded& ended) {
      return fmt::format("the script of {} has ended", group.rank_name(ended.peers[0]));
    }
  }
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace zt::comm
