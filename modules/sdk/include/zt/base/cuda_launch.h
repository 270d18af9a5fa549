// Calls of CUDA code through LibTorch's interface to devices, which needs no header of CUDA.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace zt {

// Makes `device` (CUDA) the current one and calls launch(stream) with its current stream, a cudaStream_t as void*.
template <class Launch>
void launch_on(c10::Device device, const Launch& launch) {
  const c10::DeviceGuard guard(device);
  const c10::impl::VirtualGuardImpl impl(device.type());
  launch(impl.getStreamNativeHandle(impl.getStream(device)));
}

}  // namespace zt
