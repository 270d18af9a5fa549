// Locations of the parts of a ztoolkit tree, relative to its executable. Build trees and installed trees have the same layout.
#pragma once

#include <string>
#include <vector>

namespace zt::host {

struct Paths {
  std::string executable;  // absolute path, links resolved
  std::string modules;     // the folder that holds zt/NAME.so
  std::string lua;         // the folder that holds zt/init.lua

  static Paths find();
  // Returns the file of the subcommand `name`: lua/zt/cmd/NAME.lua. The file need not exist.
  std::string command_file(const std::string& name) const;
  // Returns the sorted names of the subcommands that are written in Lua.
  std::vector<std::string> commands() const;
};

}  // namespace zt::host
