// The common part of the channels of all backends: the checks of the arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/group.h"
#include "zt/comm/channel.h"

namespace zt::comm {

class CheckedChannel : public Channel {
 public:
  // pair: the two ranks; rank 0 sends. device: where tensors may be besides the CPU; nullopt means anywhere.
  CheckedChannel(Group pair, int depth, std::optional<at::Device> device)
      : pair_(std::move(pair)), depth_(depth), device_(device) {}

  const std::string& name() const final { return pair_.name; }
  int depth() const final { return depth_; }
  Work send(std::vector<at::Tensor> tensors) final;
  Received recv() final;

 protected:
  // Sends tensors that are contiguous, on the device or the CPU, or undefined. Other rules as `send`.
  virtual Work put(std::vector<at::Tensor> tensors) = 0;
  virtual Received take() = 0;
  const Group& pair() const { return pair_; }
  bool is_sender() const { return pair_.rank == 0; }

 private:
  const Group pair_;
  const int depth_;
  const std::optional<at::Device> device_;
};

}  // namespace zt::comm
