// What the optimizers of this module share: groups, checks, and the walk over segments.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "groups.h"
#include "kernels.h"
#include "zt/base/isa.h"
#include "zt/model/optimizer.h"

namespace zt::optim {

// A checked shard, ready to be updated.
struct Shard {
  at::Tensor param;
  at::Tensor grad;                   // of the parameters' type, or 16-bit
  at::Tensor copy;                   // 16-bit; undefined: none
  std::array<at::Tensor, 2> states;  // undefined past the optimizer's own
};

// Applies `rule` to elements [segment.begin, segment.end), on the device where the shard is.
template <class Rule>
void update(const Rule& rule, const Shard& shard, const Segment& segment, Isa isa);

// An optimizer that updates element by element. A subclass says what one segment's rule is.
// Immutable once built; any number of threads may step different shards.
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
  // lr is the group's: the schedule's times lr_scale.
  virtual void step_segment(const Shard& shard, const Segment& segment, const Group& group, double lr,
                            const Scalars& scalars) const = 0;

  // Calls make_rule<T>() for the shard's element type and applies what it returns.
  template <class MakeRule>
  void apply(const Shard& shard, const Segment& segment, MakeRule make_rule) const {
    if (shard.param.scalar_type() == at::kFloat) update(make_rule.template operator()<float>(), shard, segment, isa_);
    else update(make_rule.template operator()<double>(), shard, segment, isa_);
  }

 private:
  Shard checked(FlatState& shard, const at::Tensor& grad) const;

  std::string kind_;
  std::vector<std::string> state_names_;
  double lr_;
  GroupTable groups_;
  Isa isa_;
};

}  // namespace zt::optim
