#include "rank.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

#include "failure.h"
#include "loader.h"
#include "output.h"
#include "torch_messages.h"
#include "zt/lua/runtime.h"
#include "zt/lua/state.h"
#include "zt/process/emergency.h"

namespace zt::host {

namespace {

// The ranks of this machine share its cores; a rank that mpirun bound to some of them uses no more than those.
int threads_per_rank(const World& world) {
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t allowed;
  const int bound = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : cores;
  return std::max(1, std::min(bound, cores / world.ranks_per_node));
}

constexpr std::chrono::milliseconds kReportTime(1500);

// What os.exit needs to know.
struct Exit {
  RankOutput& output;
  const std::function<void(int)>& finish;
};

// os.exit(status): as in plain Lua, but the state is closed and the process ends in order.
int exit_in_order(lua_State* L) {
  const auto* exit = static_cast<const Exit*>(lua_touserdata(L, lua_upvalueindex(1)));
  int status = EXIT_SUCCESS;
  if (lua_isboolean(L, 1)) {
    status = lua_toboolean(L, 1) ? EXIT_SUCCESS : EXIT_FAILURE;
  } else if (!lua::is_absent(L, 1)) {
    status = static_cast<int>(lua::check_integer(L, 1));
  }
  if (status == EXIT_SUCCESS) lua::end_script(L);
  exit->output.finish();
  lua_close(L);
  exit->finish(status);
  std::abort();  // finish does not return
}

void replace_exit(lua_State* L, Exit& exit) {
  lua_getglobal(L, "os");
  lua_pushlightuserdata(L, &exit);
  lua_pushcclosure(L, lua::guarded<exit_in_order>, 1);
  lua_setfield(L, -2, "exit");
  lua_pop(L, 1);
}

// What goes down with another rank has nothing to tell the user, but says why it ends.
void report(const World& world, const lua::ScriptError& error) {
  // Nobody may be there to read what is written: the end does not wait for it.
  end_process_within(kReportTime, EXIT_FAILURE);
  if (error.is_aborted) return run_emergency_actions({Emergency::Kind::failed, world.rank, error.message});
  const std::string who = world.size > 1 ? fmt::format("ztoolkit: rank {} failed: ", world.rank) : "ztoolkit: ";
  report_once(world, error.message, fmt::format("{}{}\n{}", who, error.message, error.traceback));
  run_emergency_actions({Emergency::Kind::failed, world.rank, error.message});
}

}  // namespace

lua_State* open_state(const World& world, const Paths& paths) {
  lua_State* L =
      lua::new_state(world, {.lua = fmt::format("{0}/?.lua;{0}/?/init.lua", paths.lua), .modules = paths.modules + "/?.so"});
  install_loader(L);
  return L;
}

int run_rank(const World& world, const Paths& paths, const Script& script, const std::function<void(int status)>& finish) {
  if (!std::getenv("OMP_NUM_THREADS")) at::set_num_threads(threads_per_rank(world));
  route_torch_messages(world);
  RankOutput output(world);
  Exit exit{output, finish};
  lua_State* L = open_state(world, paths);
  output.install(L);
  replace_exit(L, exit);
  const auto error = lua::run_script(L, script.path, script.arguments, script.before);
  output.finish();
  if (error) {
    report(world, *error);
    return EXIT_FAILURE;
  }
  lua_close(L);
  output.finish();  // what finalizers wrote
  return EXIT_SUCCESS;
}

}  // namespace zt::host
