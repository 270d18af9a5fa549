#include "nccl/nccl_channel.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "channel/checked_channel.h"
#include "channel/message.h"

namespace zt::comm {

namespace {

// Tensors on the device go over NCCL, those on the CPU over the host.
class NcclChannel : public CheckedChannel {
 public:
  NcclChannel(Group pair, at::Device device, std::shared_ptr<Channel> host, std::shared_ptr<Communicator> data)
      : CheckedChannel(std::move(pair), host->depth(), device), device_(device), host_(std::move(host)), data_(std::move(data)) {}

 protected:
  // The message of `host_`: the number of tensors and their shapes, no elements if they are those of the last message; then the
  // tensors on the CPU.
  Work put(std::vector<at::Tensor> tensors) override {
    MessageShapes shapes = shapes_of(tensors);
    const auto words = static_cast<int64_t>(shapes == shapes_ ? 0 : 1 + shapes.size());
    std::vector<at::Tensor> message{at::empty({words}, at::kLong)};
    if (words > 0) {
      auto* to = message[0].mutable_data_ptr<int64_t>();
      *to++ = static_cast<int64_t>(tensors.size());
      std::ranges::copy(shapes, to);
    }
    std::ranges::copy_if(tensors, std::back_inserter(message), [this](const at::Tensor& tensor) { return is_for_host(tensor); });
    host_->send(std::move(message)).wait();
    shapes_ = std::move(shapes);
    Work last;
    for_each_place(tensors, [&](const at::Tensor& tensor, size_t) {
      if (!is_for_host(tensor)) last = data_->send(tensor, 1, Async::yes);
    });
    return last;
  }

  Received take() override {
    const Received message = host_->recv();
    message.work.wait();
    const at::Tensor& words = message.tensors.at(0);
    if (words.numel() > 0) shapes_.assign(words.const_data_ptr<int64_t>() + 1, words.const_data_ptr<int64_t>() + words.numel());
    Received received{make_tensors(shapes_, device_), Work()};
    auto of_host = message.tensors.begin() + 1;
    for (at::Tensor& tensor : received.tensors) {
      if (is_for_host(tensor)) tensor = *of_host++;
    }
    for_each_place(received.tensors, [&](const at::Tensor& tensor, size_t) {
      if (!is_for_host(tensor)) received.work = data_->recv(tensor, 0, Async::yes);
    });
    return received;
  }

 private:
  bool is_for_host(const at::Tensor& tensor) const { return tensor.defined() && tensor.is_cpu() && !device_.is_cpu(); }

  const at::Device device_;
  const std::shared_ptr<Channel> host_;
  const std::shared_ptr<Communicator> data_;
  MessageShapes shapes_;  // of the last message
};

}  // namespace

std::shared_ptr<Channel> make_nccl_channel(Group pair, at::Device device, std::shared_ptr<Channel> host,
                                           std::shared_ptr<Communicator> data) {
  return std::make_shared<NcclChannel>(std::move(pair), device, std::move(host), std::move(data));
}

}  // namespace zt::comm
