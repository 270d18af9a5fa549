#include "test_device.h"

#include <c10/core/DeviceType.h>

#include <cstdlib>

#include "guard.h"
#include "memory.h"
#include "zt/base/machine.h"
#include "zt/base/tensor.h"
#include "zt/execute/pinning.h"

namespace zt::test {

c10::Device test_device() {
  static const bool is_registered = [] {
    c10::register_privateuse1_backend("test");
    register_guard();
    let_host_compute_on(kTestDevice);
    set_pinning(kTestDevice, {.pin = pin, .unpin = unpin});
    if (const char* delay = environment("ZT_TEST_DEVICE_DELAY")) set_copy_delay(std::chrono::microseconds(std::atoi(delay)));
    return true;
  }();
  return {kTestDevice, static_cast<c10::DeviceIndex>(is_registered ? 0 : -1)};
}

}  // namespace zt::test
