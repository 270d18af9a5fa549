#include "random_watch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace zt {

DefaultRandomPlace default_random_place(c10::Device device) {
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
