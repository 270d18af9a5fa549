#include "tensor_optimizer.h"

#include "zt/base/error.h"

namespace zt::optim {

TensorOptimizer::TensorOptimizer(std::string kind, std::vector<std::string> state_names, const CommonOptions& options)
    : kind_(std::move(kind)), state_names_(std::move(state_names)), lr_(options.lr), groups_("optim." + kind_, options) {}

void TensorOptimizer::step(FlatState&, const at::Tensor&, std::span<const Segment>, const Scalars&) const {
  fault("{} updates whole tensors, and was given a shard", kind_);
}

void TensorOptimizer::step_tensor(const OwnedTensor& tensor, const at::Tensor& grad, const Scalars& scalars) const {
  const ParamGroup& group = groups_.at(tensor.group);
  update(tensor, grad, {scalars.lr * group.lr_scale, group.weight_decay, scalars.step});
}

}  // namespace zt::optim
