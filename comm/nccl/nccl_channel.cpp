#include "nccl/nccl_channel.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "channel/checked_channel.h"
#include "channel/message.h"

namespace zt::comm {

namespace {

class NcclChannel : public CheckedChannel {
 public:
  NcclChannel(Group pair, at::Device device, std::shared_ptr<Channel> host, std::shared_ptr<Communicator> data)
      : CheckedChannel(std::move(pair), host->depth(), device), device_(device), host_(std::move(host)), data_(std::move(data)) {}

 protected:
  // A message of `host_` without tensors means the shapes of the last message.
  Work put(std::vector<at::Tensor> tensors) override {
    MessageShapes shapes = shapes_of(tensors);
    std::vector<at::Tensor> words;
    if (shapes != shapes_) {
      words.push_back(at::empty({static_cast<int64_t>(shapes.size())}, at::kLong));
      std::copy(shapes.begin(), shapes.end(), words[0].mutable_data_ptr<int64_t>());
    }
    host_->send(std::move(words)).wait();
    shapes_ = std::move(shapes);
    Work last;
    for_each_place(tensors, [&](const at::Tensor& tensor, size_t) { last = data_->send(tensor, 1, Async::yes); });
    return last;
  }

  Received take() override {
    const Received words = host_->recv();
    words.work.wait();
    if (!words.tensors.empty()) {
      const auto* begin = words.tensors[0].const_data_ptr<int64_t>();
      shapes_.assign(begin, begin + words.tensors[0].numel());
    }
    Received received{make_tensors(shapes_, device_), Work()};
    for_each_place(received.tensors,
                   [&](const at::Tensor& tensor, size_t) { received.work = data_->recv(tensor, 0, Async::yes); });
    return received;
  }

 private:
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
