// A device without a GPU, by LibTorch's type PrivateUse1: its tensors are not in host memory for any check, though the host
// reaches them. Kernels are the CPU's and run at once. Copies on another stream than the current one run on a thread of their
// own, after a delay that tests set, and memory is filled with ones when it is freed: what forgets an event or frees too early
// computes with other numbers.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>

namespace zt::test {

// Returns the device. The first call registers it with LibTorch and the toolkit. Copies have the delay that the variable
// ZT_TEST_DEVICE_DELAY says in microseconds, until `set_copy_delay`.
c10::Device test_device();

void set_copy_delay(std::chrono::microseconds delay);

struct CopiedBytes {
  int64_t to_device = 0, to_host = 0, within = 0;  // within: from the device to itself
  int64_t pinned = 0;  // of all, those that had no wait for the copy, because the host's end is pinned
};
// Returns the bytes that copies have moved since the start of the process.
CopiedBytes copied_bytes();

// Return the bytes that are allocated now on the device, and of pinned memory.
int64_t device_bytes();
int64_t pinned_bytes();

}  // namespace zt::test
