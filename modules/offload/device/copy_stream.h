// Copies between the memories of a device and of the host, in a stream of their own: they run beside compute.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

#include "zt/comm/comm.h"

namespace zt::offload {

// Threads: any, one at a time.
class CopyStream {
 public:
  explicit CopyStream(at::Device device);
  // Waits for the copies.
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  // Returns an event of the present work of this thread's current stream.
  std::shared_ptr<const c10::Event> ready() const;
  // Starts a copy ([n], uint8) after `ready`. A tensor on the device may be freed before the copy is over; memory of the host
  // must live until then. The work's `wait` makes the current stream wait.
  Work copy(at::Tensor to, const at::Tensor& from, const c10::Event& ready);
  // Returns the work of the copies that were started, whose `wait` makes the thread wait.
  Work so_far() const;
  // Waits for the copies that were started.
  void synchronize() const { guard_.synchronizeStream(stream_); }

 private:
  const at::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
};

}  // namespace zt::offload
