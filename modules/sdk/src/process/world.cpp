#include "zt/process/world.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "zt/base/error.h"
#include "zt/base/machine.h"

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

std::atomic<bool> stop_is_polled{false}, stop_is_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

struct RunFolder {
  std::mutex mutex;
  std::string path;
};
// Never destroyed: an emergency action can read the folder while the process ends.
RunFolder& the_run_folder() {
  static auto& folder = *new RunFolder;
  return folder;
}

}  // namespace

World World::from_environment() {
  World world;
  const char* rank = environment("OMPI_COMM_WORLD_RANK");
  const char* size = environment("OMPI_COMM_WORLD_SIZE");
  if (!rank || !size) return world;
  world.launch = Launch::mpi;
  world.rank = environment_number("OMPI_COMM_WORLD_RANK", rank);
  world.size = environment_number("OMPI_COMM_WORLD_SIZE", size);
  const char* local_size = environment("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local_size) world.ranks_per_node = std::max(1, environment_number("OMPI_COMM_WORLD_LOCAL_SIZE", local_size));
  return world;
}

std::string session_folder() {
  const char* folder = environment("PMIX_SERVER_TMPDIR");
  return folder ? folder : "";
}

bool is_stop_requested() {
  stop_is_polled = true;
  return stop_is_requested;
}
bool request_stop() {
  return stop_is_polled && !stop_is_requested.exchange(true);
}

void set_run_folder(const std::string& path) {
  const std::lock_guard lock(the_run_folder().mutex);
  the_run_folder().path = path;
}

std::string run_folder() {
  const std::lock_guard lock(the_run_folder().mutex);
  return the_run_folder().path;
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
