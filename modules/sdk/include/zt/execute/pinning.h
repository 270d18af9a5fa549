// Host memory that a device copies from and to while the host does other things.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstddef>

namespace zt {

// How memory of the host is pinned for a type of device. `pin` returns whether the system has done so.
struct Pinning {
  bool (*pin)(void* memory, size_t bytes) = nullptr;
  void (*unpin)(void* memory) = nullptr;
};
// Returns how memory is pinned for this type; without functions if the toolkit does not know it. CUDA is known in builds that
// have code for it.
Pinning pinning_for(c10::DeviceType type);
// For devices that the toolkit does not know. Call it before memory is pinned.
void set_pinning(c10::DeviceType type, Pinning pinning);

}  // namespace zt
