// Detects random numbers that were drawn from LibTorch's default generators.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>

namespace zt {

// A snapshot of how far the default generators are in their streams: that of the CPU, and that of `device` if it is a GPU. Equal
// snapshots mean that no random number was drawn in between.
struct DefaultRandomPlace {
  std::array<uint32_t, 3> cpu{};
  uint64_t gpu = 0;
  bool operator==(const DefaultRandomPlace&) const = default;
};
DefaultRandomPlace default_random_place(c10::Device device);

}  // namespace zt
