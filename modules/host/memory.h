#pragma once

namespace zt::host {

// Makes malloc keep the memory of large tensors. Called first in main: it holds for what is allocated afterwards.
void keep_large_blocks();

}  // namespace zt::host
