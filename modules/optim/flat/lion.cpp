#include "lion.h"

#include "betas.h"

namespace zt::optim {

namespace {

struct LionOptions : CommonOptions {
  Betas betas{0.9, 0.99};
};

class Lion final : public FlatOptimizer {
 public:
  Lion(const LionOptions& options, Isa isa) : FlatOptimizer("lion", {"exp_avg"}, options, isa), options_(options) {}

 private:
  void step_segment(const ShardBuffers& shard, const Segment& segment, const ParamGroup& group, double lr,
                    const Scalars& scalars) const override {
    apply(shard, segment, [&]<class T>() {
      return LionRule<T>{.grad_scale = static_cast<T>(scalars.grad_scale),
                         .decay = static_cast<T>(lr * group.weight_decay),
                         .rest1 = static_cast<T>(1 - options_.betas[0]),
                         .rest2 = static_cast<T>(1 - options_.betas[1]),
                         .lr = static_cast<T>(lr)};
    });
  }

  LionOptions options_;
};

}  // namespace

std::shared_ptr<Optimizer> make_lion(const Value& value, Isa isa) {
  return common_options(Schema<LionOptions>("optim.lion"))
      .optional("betas", &LionOptions::betas, "decay rates of the average in the update and of the average that is kept",
                check_betas)
      .make(value, [&](const LionOptions& o) { return std::make_shared<Lion>(o, isa); });
}

}  // namespace zt::optim
