// Memory of the test device, and pinned memory of the host.
#pragma once

#include <c10/core/Allocator.h>

#include "support/test_device/workers.h"

namespace zt::test {

inline constexpr c10::DeviceType kTestDevice = c10::DeviceType::PrivateUse1;

c10::Allocator& device_allocator();
c10::Allocator& pinned_allocator();
// Pins memory that others have allocated.
bool pin(void* memory, size_t bytes);
void unpin(void* memory);
bool is_pinned(const void* memory);
// Keeps the memory until what the stream has to do now is done.
void keep_for(const void* memory, Worker& worker);

}  // namespace zt::test
