#include "zt/world.h"

#include <cstdlib>
#include <vector>

#include "zt/error.h"

namespace zt {

namespace {

int environment_number(const char* name, const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0)
    misuse("the environment variable {} is '{}', not a number: was it set by hand?", name, text);
  return static_cast<int>(value);
}

struct ShutdownActions {
  std::mutex mutex;
  std::vector<std::function<void()>> actions;
};
ShutdownActions& shutdown_actions() {
  static ShutdownActions actions;
  return actions;
}

}  // namespace

World World::from_environment() {
  World world;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (!rank || !size) return world;
  world.launch = Launch::mpi;
  world.rank = environment_number("OMPI_COMM_WORLD_RANK", rank);
  world.size = environment_number("OMPI_COMM_WORLD_SIZE", size);
  return world;
}

void at_shutdown(std::function<void()> action) {
  const std::lock_guard lock(shutdown_actions().mutex);
  shutdown_actions().actions.push_back(std::move(action));
}

void run_shutdown_actions() {
  for (;;) {
    std::function<void()> action;
    {
      const std::lock_guard lock(shutdown_actions().mutex);
      auto& actions = shutdown_actions().actions;
      if (actions.empty()) return;
      action = std::move(actions.back());
      actions.pop_back();
    }
    action();
  }
}

}  // namespace zt
