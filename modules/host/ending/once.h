// Prints a message once if several ranks of a machine fail in the same way.
#pragma once

#include <string>

namespace zt::host {

// Returns whether this process is the first one to call this with `key` and the same folder, which the processes of a run share.
// The first one creates a file in the folder. If the file cannot be created, returns true.
bool first_in_folder(const std::string& folder, const std::string& key);

}  // namespace zt::host
