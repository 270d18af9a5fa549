// One message for all ranks of a machine that fail alike.
#pragma once

#include <string>

namespace zt::host {

// Whether this process is the first to name `key` in the folder, in which processes of one run meet: it leaves a file there.
// Where the file cannot be made, each is the first.
bool first_in_folder(const std::string& folder, const std::string& key);

}  // namespace zt::host
