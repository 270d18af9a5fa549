// Where the parts of a ztoolkit tree lie, seen from its executable: the same in a build tree and an installed one.
#pragma once

#include <string>
#include <vector>

namespace zt::host {

struct Paths {
  std::string executable;  // absolute, links resolved
  std::string modules;     // the folder that holds zt/NAME.so
  std::string lua;         // the folder that holds zt/init.lua

  static Paths find();
  // The file of the subcommand `name`: lua/zt/cmd/NAME.lua, whether it exists or not.
  std::string command_file(const std::string& name) const;
  // Subcommands written in Lua, by name.
  std::vector<std::string> commands() const;
};

}  // namespace zt::host
