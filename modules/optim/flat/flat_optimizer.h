// The base class of the optimizers of this module: groups, checks, and the loop over segments.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "kernels.h"
#include "zt/base/isa.h"
#include "zt/model/optimizer.h"
#include "zt/model/param_groups.h"

namespace zt::optim {

// A checked shard, ready to be updated.
struct ShardBuffers {
  at::Tensor param;
  at::Tensor grad;                   // of the parameters' dtype, or 16-bit
  at::Tensor copy;                   // 16-bit copy of the parameters; undefined means no copy
  std::array<at::Tensor, 2> states;  // entries that the optimizer does not use are undefined
};

// Applies `rule` to the elements [segment.begin, segment.end) on the shard's device.
template <class Rule>
void update(const Rule& rule, const ShardBuffers& shard, const Segment& segment, Isa isa);

// An optimizer that updates each element on its own. A subclass provides the rule of a segment.
// Immutable after construction. Threads: any; two calls of step() must not have the same shard.
class FlatOptimizer : public Optimizer {
 public:
  FlatOptimizer(std::string kind, std::vector<std::string> state_names, const CommonOptions& options, Isa isa);

  std::string kind() const override { return kind_; }
  double lr() const override { return lr_; }
  std::vector<std::string> state_names() const override { return state_names_; }
  int group_of(const ParamInfo& param) const override { return groups_.group_of(param); }
  void check(const ModelInfo& model) const override { groups_.check(model); }
  void step(FlatState& shard, const at::Tensor& grad, std::span<const Segment> segments, const Scalars& scalars) const override;

 protected:
  // Updates a segment. `lr` is the rate of the group: the schedule's rate times lr_scale.
  virtual void step_segment(const ShardBuffers& shard, const Segment& segment, const ParamGroup& group, double lr,
                            const Scalars& scalars) const = 0;

  // Calls make_rule<T>() for the shard's element type and applies the rule that it returns.
  template <class MakeRule>
  void apply(const ShardBuffers& shard, const Segment& segment, MakeRule make_rule) const {
    if (shard.param.scalar_type() == at::kFloat) update(make_rule.template operator()<float>(), shard, segment, isa_);
    else update(make_rule.template operator()<double>(), shard, segment, isa_);
  }

 private:
  ShardBuffers checked(FlatState& shard, const at::Tensor& grad) const;

  std::string kind_;
  std::vector<std::string> state_names_;
  double lr_;
  GroupTable groups_;
  Isa isa_;
};

}  // namespace zt::optim
