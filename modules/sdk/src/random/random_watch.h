// Detects random numbers that were drawn from LibTorch's default generators.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <array>
#include <cstdint>
#include <mutex>

namespace zt {

// A snapshot of how far the default generators are in their streams: that of the CPU, and that of `device` if it is a GPU. Equal
// snapshots mean that no random number was drawn in between.
struct DefaultRandomPlace {
  std::array<uint32_t, 3> cpu{};
  uint64_t gpu = 0;
  bool operator==(const DefaultRandomPlace&) const = default;
};
inline DefaultRandomPlace default_random_place(c10::Device device) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
  DefaultRandomPlace place;
  {
    const std::lock_guard lock(generator.mutex());
    const auto stream = cpu->engine().data();
    place.cpu = {static_cast<uint32_t>(stream.left_), stream.next_, stream.state_[0]};
  }
  if (device.is_cuda()) place.gpu = at::globalContext().defaultGenerator(device).get_offset();
  return place;
}

}  // namespace zt
