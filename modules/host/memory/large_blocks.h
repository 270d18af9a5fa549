#pragma once

namespace zt::host {

// Lets large tensors of the CPU be taken from memory that the process keeps, at most as much as they took together at their peak.
// Call it first in main: it affects later allocations only.
void keep_large_blocks();

}  // namespace zt::host
