// A backend in host memory over a Transport: queue, time-outs and the collectives of algorithms.h.
#pragma once

#include <atomic>
#include <memory>

#include "backend.h"
#include "host/algorithms.h"
#include "host/queue.h"
#include "host/transport.h"

namespace zt::comm {

// Invariant: after a Fault every further operation fails with it; nothing touches the transport any more.
class HostBackend : public Backend {
 public:
  explicit HostBackend(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  const Group& group() const override { return transport_->group(); }
  const std::string& name() const override { return transport_->name(); }
  std::optional<at::Device> device() const override { return at::kCPU; }
  Work submit(Operation operation, Async async) override;
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) override { return transport_->allocate(shape, dtype); }
  std::unique_ptr<Backend> duplicate(const std::string& name) override;
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void drain() override { queue_.drain(); }

 private:
  void run(const Operation& operation, uint64_t number, Patience::Style style);
  void keep_forever(const Operation& operation);
  [[noreturn]] void report(const TimedOut& late, const Operation& operation, uint64_t number) const;

  std::unique_ptr<Transport> transport_;
  Staging staging_;
  uint64_t operations_ = 0;
  std::atomic<std::chrono::milliseconds> timeout_{kDefaultTimeout};
  Queue queue_;  // destroyed first: its tasks use the rest
};

}  // namespace zt::comm
