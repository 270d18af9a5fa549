#include "channel/checked_channel.h"

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

Work CheckedChannel::send(std::vector<at::Tensor> tensors) {
  if (!is_sender()) misuse("channel '{}': {} receives, and only {} may send", name(), pair_.rank_name(1), pair_.rank_name(0));
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor& tensor = tensors[i];
    if (!tensor.defined()) continue;
    if (tensor.layout() != at::kStrided || tensor.is_quantized())
      misuse("channel '{}': tensor {} is {}, and only dense tensors can be sent: convert it", name(), i, describe(tensor));
    if (device_ && !tensor.is_cpu() && tensor.device() != *device_) {
      misuse("channel '{}': tensor {} is {}, but the channel works on the CPU's and on {} memory: move it there", name(), i,
             describe(tensor), device_->str());
    }
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous();
  }
  return put(std::move(tensors));
}

Channel::Received CheckedChannel::recv() {
  if (is_sender()) misuse("channel '{}': {} sends, and only {} may receive", name(), pair_.rank_name(0), pair_.rank_name(1));
  return take();
}

}  // namespace zt::comm
