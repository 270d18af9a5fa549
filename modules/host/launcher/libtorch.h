// LibTorch on the machine where an installed ztoolkit runs.
#pragma once

#include <filesystem>

namespace zt::host {

// Returns the folder of LibTorch for the installed tree `root`, with links resolved: the folder that ZT_TORCH_DIR names or, if
// that is not set, `root`/torch. Throws std::runtime_error if there is no LibTorch, or another version than this tree was built
// with. The message says what to do.
std::filesystem::path find_libtorch(const std::filesystem::path& root);

}  // namespace zt::host
