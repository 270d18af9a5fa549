// LibTorch's interface to the device and its streams.
#pragma once

namespace zt::test {

// Registers the guard, the allocators and the hooks of the test device with LibTorch.
void register_guard();

}  // namespace zt::test
