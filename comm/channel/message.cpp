#include "channel/message.h"

#include <ATen/ops/empty.h>

namespace zt::comm {

MessageShapes shapes_of(std::span<const at::Tensor> tensors) {
  MessageShapes shapes;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      shapes.push_back(-1);
      continue;
    }
    shapes.push_back(static_cast<int64_t>(tensor.scalar_type()));
    shapes.push_back(tensor.is_cpu() ? 1 : 0);
    shapes.push_back(tensor.dim());
    shapes.insert(shapes.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  return shapes;
}

std::vector<at::Tensor> make_tensors(const MessageShapes& shapes, at::Device device) {
  std::vector<at::Tensor> tensors;
  for (size_t at = 0; at < shapes.size();) {
    const int64_t type = shapes[at++];
    if (type < 0) {
      tensors.emplace_back();
      continue;
    }
    const bool is_on_cpu = shapes[at++] == 1;
    const auto dims = static_cast<size_t>(shapes[at++]);
    const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(type)).device(is_on_cpu ? at::kCPU : device);
    tensors.push_back(at::empty(at::IntArrayRef(shapes.data() + at, dims), options));
    at += dims;
  }
  return tensors;
}

}  // namespace zt::comm
