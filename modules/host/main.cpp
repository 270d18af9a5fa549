// ztoolkit: reads the command line, starts Lua, and runs the shutdown in order. It names no module.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli.h"
#include "ending/failure.h"
#include "ending/signals.h"
#include "info.h"
#include "loading/module_list.h"
#include "memory/large_blocks.h"
#include "ranks/launch.h"
#include "zt/base/error.h"
#include "zt/base/machine.h"

namespace {

using namespace zt::host;

constexpr int kWrongCommandLine = 2;

int show_modules(const Paths& paths) {
  const std::unique_ptr<lua_State, decltype(&lua_close)> L(open_state(zt::World{}, paths), lua_close);
  fmt::print("{}", module_table(list_modules(L.get())));
  return EXIT_SUCCESS;
}

int show_info(const Paths& paths, bool is_json) {
  const auto info = collect_info(paths);
  fmt::print("{}", is_json ? info.dump(2) + "\n" : info_text(info));
  return EXIT_SUCCESS;
}

int dispatch(const Command& command, const Paths& paths) {
  switch (command.verb) {
    case Verb::print:
      fmt::print("{}", command.text);
      return EXIT_SUCCESS;
    case Verb::run:
      return launch(paths, command.script, command.options);
    case Verb::info:
      return show_info(paths, command.is_json);
    case Verb::modules:
      return show_modules(paths);
  }
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  keep_large_blocks();
  const bool is_under_mpirun = zt::environment("OMPI_COMM_WORLD_RANK") != nullptr;
  zt::World world;  // for error messages before the command line is read: printed once for all ranks
  if (is_under_mpirun) {
    world.launch = zt::Launch::mpi;
    world.rank = std::atoi(zt::environment("OMPI_COMM_WORLD_RANK"));
  }
  // Under mpirun, MPI reports a socket that a peer closed. Otherwise a closed pipe ends the process, as usual.
  signal(SIGPIPE, is_under_mpirun ? SIG_IGN : SIG_DFL);
  signal(SIGXFSZ, SIG_IGN);  // a file at its size limit (ulimit -f) then gives an error message instead of a silent end
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);

  int status = EXIT_FAILURE;
  std::string message;
  try {
    // mpirun reports an interrupt itself.
    watch_signals(is_under_mpirun ? Announce::no : Announce::yes, world);
    const Paths paths = Paths::find();
    leave_process(dispatch(parse_command_line(argc, argv, paths), paths));
  } catch (const zt::Misuse& error) {
    message = fmt::format("{}\nztoolkit --help lists subcommands and options.", error.what());
    status = kWrongCommandLine;
  } catch (const std::exception& error) {
    message = zt::describe(error);
  }
  report_once(world, message, "ztoolkit: " + message);
  end_process(status);
}
