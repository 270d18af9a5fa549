#include "zt/process/emergency.h"

#include <exception>
#include <mutex>
#include <vector>

namespace zt {

namespace {

struct Actions {
  std::mutex mutex;  // of the list
  std::vector<std::function<void(const Emergency&)>> list;
  std::mutex running;
};

// Never destroyed: a signal can arrive while the process ends.
Actions& actions() {
  static auto& actions = *new Actions;
  return actions;
}

}  // namespace

void at_emergency(std::function<void(const Emergency&)> action) {
  const std::lock_guard lock(actions().mutex);
  actions().list.push_back(std::move(action));
}

void run_emergency_actions(const Emergency& emergency) {
  const std::lock_guard one_at_a_time(actions().running);
  std::vector<std::function<void(const Emergency&)>> list;
  {
    const std::lock_guard lock(actions().mutex);
    list = actions().list;
  }
  for (const auto& action : list) {
    try {
      action(emergency);
    } catch (const std::exception&) {
      // Ignored: the process ends for another reason, and its message is the one to print.
    }
  }
}

}  // namespace zt
