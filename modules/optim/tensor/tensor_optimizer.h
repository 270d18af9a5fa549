// The base class of the optimizers of this module that update whole tensors.
#pragma once

#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/model/optimizer.h"
#include "zt/model/param_groups.h"

namespace zt::optim {

// The rate and the weight decay of one tensor.
struct TensorRate {
  double lr = 0;  // the schedule's rate times lr_scale
  double weight_decay = 0;
  int64_t step = 1;  // 1-based count of updates
};

// An optimizer that updates a parameter as a whole, on the rank that owns it. A subclass provides the rule of a tensor.
// Immutable after construction. Threads: any; two calls of step_tensor must not have the same tensor.
class TensorOptimizer : public Optimizer {
 public:
  TensorOptimizer(std::string kind, std::vector<std::string> state_names, const CommonOptions& options);

  std::string kind() const override { return kind_; }
  double lr() const override { return lr_; }
  std::vector<std::string> state_names() const override { return state_names_; }
  Scope scope(const ParamInfo&) const override { return Scope::tensor; }
  int group_of(const ParamInfo& param) const override { return groups_.group_of(param); }
  void check(const ModelInfo& model) const override { groups_.check(model); }
  // Throws Fault: no parameter is in element scope, unless a subclass says so.
  void step(FlatState& shard, const at::Tensor& grad, std::span<const Segment> segments, const Scalars& scalars) const override;
  void step_tensor(const OwnedTensor& tensor, const at::Tensor& grad, const Scalars& scalars) const override;

 protected:
  // Updates tensor.values and its states; may change grad.
  virtual void update(const OwnedTensor& tensor, const at::Tensor& grad, const TensorRate& rate) const = 0;

 private:
  std::string kind_;
  std::vector<std::string> state_names_;
  double lr_;
  GroupTable groups_;
};

}  // namespace zt::optim
