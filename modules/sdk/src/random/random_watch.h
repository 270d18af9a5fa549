// Whether somebody drew from LibTorch's default generators.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>

namespace zt {

// The place of the default generators of the CPU and, if it is a GPU, of `device` in their streams. Two that are equal: nobody
// drew between.
struct DefaultRandomPlace {
  std::array<uint32_t, 3> cpu{};
  uint64_t gpu = 0;
  bool operator==(const DefaultRandomPlace&) const = default;
};
DefaultRandomPlace default_random_place(c10::Device device);

}  // namespace zt
