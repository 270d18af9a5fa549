#include "adam.h"

#include <cmath>

#include "betas.h"

namespace zt::optim {

namespace {

struct AdamOptions : CommonOptions {
  Betas betas{0.9, 0.999};
  double eps = 1e-8;
};
struct AdamWOptions : AdamOptions {
  AdamWOptions() { weight_decay = 0.01; }
};

template <class Options>
Schema<Options> adam_schema(const std::string& name) {
  return common_options(Schema<Options>(name))
      .optional("betas", &Options::betas, "decay rates of the averages of the gradient and of its square", check_betas)
      .optional("eps", &Options::eps, "added to the square root of the averaged square", above(0));
}

template <Decay kDecay>
class Adam final : public FlatOptimizer {
 public:
  Adam(const std::string& kind, const AdamOptions& options, Isa isa)
      : FlatOptimizer(kind, {"exp_avg", "exp_avg_sq"}, options, isa), options_(options) {}

 private:
  void step_segment(const ShardBuffers& shard, const Segment& segment, const ParamGroup& group, double lr,
                    const Scalars& scalars) const override {
    const double beta1 = options_.betas[0], beta2 = options_.betas[1];
    const auto t = static_cast<double>(scalars.step);
    apply(shard, segment, [&]<class T>() {
      return AdamRule<T, kDecay>{.grad_scale = static_cast<T>(scalars.grad_scale),
                                 .decay = static_cast<T>(kDecay == Decay::l2 ? group.weight_decay : lr * group.weight_decay),
                                 .rest1 = static_cast<T>(1 - beta1),
                                 .rest2 = static_cast<T>(1 - beta2),
                                 .step_size = static_cast<T>(lr / (1 - std::pow(beta1, t))),
                                 .root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, t))),
                                 .eps = static_cast<T>(options_.eps)};
    });
  }

  AdamOptions options_;
};

}  // namespace

std::shared_ptr<Optimizer> make_adamw(const Value& options, Isa isa) {
  return adam_schema<AdamWOptions>("optim.adamw").make(options, [&](const AdamWOptions& o) {
    return std::make_shared<Adam<Decay::decoupled>>("adamw", o, isa);
  });
}

std::shared_ptr<Optimizer> make_adam(const Value& options, Isa isa) {
  return adam_schema<AdamOptions>("optim.adam").make(options, [&](const AdamOptions& o) {
    return std::make_shared<Adam<Decay::l2>>("adam", o, isa);
  });
}

}  // namespace zt::optim
