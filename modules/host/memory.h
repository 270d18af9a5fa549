#pragma once

namespace zt::host {

// Makes malloc keep the memory of freed large tensors. Call it first in main: it affects later allocations only.
void keep_large_blocks();

}  // namespace zt::host
