// A hint for users who gave a folder in place of a script or a subcommand.
#pragma once

#include <string>

namespace zt::host {

// Returns the end of a message about the folder `path`: what is in it, and the commands for that. Starts with a space.
std::string folder_hint(const std::string& path);

}  // namespace zt::host
