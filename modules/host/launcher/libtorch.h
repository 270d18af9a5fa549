// LibTorch on the machine where an installed ztoolkit runs.
#pragma once

#include <filesystem>

namespace zt::host {

// The folder of LibTorch for the installed tree `root`, links resolved: the one that ZT_TORCH_DIR names or, where that is not
// set, `root`/torch. Throws std::runtime_error, with what to do, where there is none or not the version that this tree was built
// with.
std::filesystem::path find_libtorch(const std::filesystem::path& root);

}  // namespace zt::host
