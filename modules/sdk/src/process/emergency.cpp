#include "zt/process/emergency.h"

#include <exception>
#include <mutex>
#include <vector>

namespace zt {

namespace {

// The actions that at_emergency was given.
struct EmergencyActions {
  std::mutex mutex;  // of the list
  std::vector<std::function<void(const Emergency&)>> list;
  std::mutex running;
};

// Never destroyed: a signal can arrive while the process ends.
EmergencyActions& emergency_actions() {
  static auto& actions = *new EmergencyActions;
  return actions;
}

}  // namespace

void at_emergency(std::function<void(const Emergency&)> action) {
  const std::lock_guard lock(emergency_actions().mutex);
  emergency_actions().list.push_back(std::move(action));
}

void run_emergency_actions(const Emergency& emergency) {
  const std::lock_guard one_at_a_time(emergency_actions().running);
  std::vector<std::function<void(const Emergency&)>> list;
  {
    const std::lock_guard lock(emergency_actions().mutex);
    list = emergency_actions().list;
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
