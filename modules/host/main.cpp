// ztoolkit: reads the command line, starts Lua, orders shutdown. It knows no module by name.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli.h"
#include "failure.h"
#include "info.h"
#include "launch.h"
#include "memory.h"
#include "module_list.h"
#include "signals.h"
#include "zt/base/error.h"

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
  const bool is_under_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  zt::World place;  // for messages that come before the command line is read: once over all ranks
  if (is_under_mpirun) {
    place.launch = zt::Launch::mpi;
    place.rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  }
  // A peer's closed socket is MPI's to report; a closed pipe ends a plain process, as usual.
  signal(SIGPIPE, is_under_mpirun ? SIG_IGN : SIG_DFL);
  signal(SIGXFSZ, SIG_IGN);  // a file at its limit (ulimit -f) is an error with words, not a death without
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);

  int status = EXIT_FAILURE;
  std::string message;
  try {
    // mpirun tells the user itself.
    watch_signals(is_under_mpirun ? Announce::no : Announce::yes, place);
    const Paths paths = Paths::find();
    return dispatch(parse_command_line(argc, argv, paths), paths);
  } catch (const zt::Misuse& error) {
    message = fmt::format("{}\nztoolkit --help shows what there is.", error.what());
    status = kWrongCommandLine;
  } catch (const std::exception& error) {
    message = zt::describe(error);
  }
  report_once(place, message, "ztoolkit: " + message);
  end_process(status);
}
