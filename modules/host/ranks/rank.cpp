#include "rank.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "ending/failure.h"
#include "loading/loader.h"
#include "output/output.h"
#include "zt/base/machine.h"
#include "zt/lua/runtime.h"
#include "zt/lua/state.h"
#include "zt/process/emergency.h"
#include "zt/process/log.h"

C10_DECLARE_int(caffe2_log_level);

namespace zt::host {

namespace {

class WarningLogger : public c10::WarningHandler {
 public:
  explicit WarningLogger(World world) : world_(std::move(world)) {}
  void process(const c10::Warning& warning) override { log(LogLevel::warn, world_, "LibTorch: " + warning.msg()); }

 private:
  const World world_;
};

void hide_messages_below_errors() {
  if (!environment("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

// Sends the LibTorch warnings of this thread to zt.log, and hides LibTorch's own log below errors: its memory profiler, which
// counts activations, logs every thousandth tensor that is older than a step. Set TORCH_CPP_LOG_LEVEL to show that log.
void route_torch_messages(const World& world) {
  static std::once_flag once;
  std::call_once(once, hide_messages_below_errors);
  // Warnings may come until the thread ends, so the handler must live as long.
  static thread_local WarningLogger logger(world);
  c10::WarningUtils::set_warning_handler(&logger);
}

// Returns this rank's share of the machine's cores, but no more than the cores that mpirun bound the rank to.
int threads_per_rank(const World& world) {
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t allowed;
  const int bound = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : cores;
  return std::max(1, std::min(bound, cores / world.ranks_per_node));
}

constexpr std::chrono::milliseconds kReportTime(1500);

// Data for os.exit.
struct Exit {
  const World& world;
  RankOutput& output;
  const std::function<void(int)>& finish;
};

// os.exit(status): as in plain Lua, but closes the state and shuts the process down in order.
int exit_in_order(lua_State* L) {
  const auto* exit = static_cast<const Exit*>(lua_touserdata(L, lua_upvalueindex(1)));
  int status = EXIT_SUCCESS;
  if (lua_isboolean(L, 1)) {
    status = lua_toboolean(L, 1) ? EXIT_SUCCESS : EXIT_FAILURE;
  } else if (!lua::is_absent(L, 1)) {
    status = static_cast<int>(lua::check_integer(L, 1));
  }
  if (status == EXIT_SUCCESS) lua::end_script(L);
  else run_emergency_actions({Emergency::Kind::exited, exit->world.rank, fmt::format("status {}", status)});
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

// Prints the error and runs the emergency actions. A rank that was aborted because another rank failed prints nothing.
void report(const World& world, const lua::ScriptError& error) {
  // A write blocks while the pipe of the output is full. So the process ends after kReportTime in any case.
  end_process_within(kReportTime, EXIT_FAILURE);
  if (error.is_aborted) return run_emergency_actions({Emergency::Kind::failed, world.rank, error.message});
  const std::string who = world.size > 1 ? fmt::format("ztoolkit: rank {} failed: ", world.rank) : "ztoolkit: ";
  report_once(world, error.message, fmt::format("{}{}\n{}", who, error.message, error.traceback));
  run_emergency_actions({Emergency::Kind::failed, world.rank, error.message});
}

}  // namespace

lua_State* open_state(const World& world, const Paths& paths, const std::optional<PlanRequest>& plan) {
  lua_State* L =
      lua::new_state(world, {.lua = fmt::format("{0}/?.lua;{0}/?/init.lua", paths.lua), .modules = paths.modules + "/?.so"});
  install_loader(L, plan);
  return L;
}

int run_rank(const World& world, const Paths& paths, const Script& script, const std::function<void(int status)>& finish) {
  if (!environment("OMP_NUM_THREADS")) at::set_num_threads(threads_per_rank(world));
  route_torch_messages(world);
  RankOutput output(world);
  Exit exit{world, output, finish};
  lua_State* L = open_state(world, paths, script.plan);
  output.install(L);
  replace_exit(L, exit);
  const auto error = lua::run_script(L, script.path, script.arguments, script.before);
  output.finish();
  if (error) {
    report(world, *error);
    return EXIT_FAILURE;
  }
  lua_close(L);
  output.finish();  // writes the output of finalizers
  return EXIT_SUCCESS;
}

}  // namespace zt::host
