// The backend that runs the collectives of algorithms.h over a Transport, in host memory.
#pragma once

#include <memory>

#include "algorithms.h"
#include "queue/queued_backend.h"
#include "transport.h"

namespace zt::comm {

class HostBackend : public QueuedBackend {
 public:
  explicit HostBackend(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)), check_abort_(transport_->abort_check()) {}
  ~HostBackend() override { close(); }

  const Group& group() const override { return transport_->group(); }
  const std::string& name() const override { return transport_->name(); }
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Backend*>&) override {
    return transport_->allocate(shape, dtype);
  }
  bool shares_memory() const override { return transport_->shares_memory(); }
  at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) override {
    return transport_->allocate_shared(shape, dtype);
  }
  std::unique_ptr<Backend> duplicate(const std::string& name) override;
  std::shared_ptr<Channel> channel(const ChannelPlan& plan, Communicator& whole, std::shared_ptr<BlackBox> box) override;

 protected:
  void run_single(const Operation& operation, WaitPolicy& policy) override;
  void compare(const Operation& operation, WaitPolicy& policy) override;
  void check_abort() const override { check_abort_(); }
  at::Tensor take_scratch() override { return staging_.release(); }

 private:
  std::unique_ptr<Backend> wrap(std::unique_ptr<Transport> transport) const;

  std::unique_ptr<Transport> transport_;
  const std::function<void()> check_abort_;
  Staging staging_;
};

}  // namespace zt::comm
