// The command line.
#pragma once

#include <string>

#include "loading/paths.h"
#include "ranks/launch.h"
#include "ranks/rank.h"

namespace zt::host {

enum class Verb { print, run, info, modules };

struct Command {
  Verb verb = Verb::print;
  std::string text;       // print: what to print
  Script script;          // run
  LaunchOptions options;  // run
  bool is_json = false;   // info
};

// Throws Misuse with a message for the user if the command line is wrong.
Command parse_command_line(int argc, const char* const* argv, const Paths& paths);

}  // namespace zt::host
