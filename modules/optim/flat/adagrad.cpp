#include "adagrad.h"

namespace zt::optim {

namespace {

struct AdagradOptions : CommonOptions {
  double lr_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
};

class Adagrad final : public FlatOptimizer {
 public:
  Adagrad(const AdagradOptions& options, Isa isa) : FlatOptimizer("adagrad", {"sum"}, options, isa), options_(options) {}

 private:
  void step_segment(const ShardBuffers& shard, const Segment& segment, const ParamGroup& group, double lr,
                    const Scalars& scalars) const override {
    const double decayed = lr / (1 + static_cast<double>(scalars.step - 1) * options_.lr_decay);
    apply(shard, segment, [&]<class T>() {
      return AdagradRule<T>{.grad_scale = static_cast<T>(scalars.grad_scale),
                            .decay = static_cast<T>(group.weight_decay),
                            .initial = static_cast<T>(scalars.step == 1 ? options_.initial_accumulator_value : 0),
                            .lr = static_cast<T>(decayed),
                            .eps = static_cast<T>(options_.eps)};
    });
  }

  AdagradOptions options_;
};

}  // namespace

std::shared_ptr<Optimizer> make_adagrad(const Value& value, Isa isa) {
  using Options = AdagradOptions;
  return common_options(Schema<Options>("optim.adagrad"))
      .optional("lr_decay", &Options::lr_decay, "the rate of update t is lr / (1 + (t - 1) * lr_decay)", at_least(0))
      .optional("initial_accumulator_value", &Options::initial_accumulator_value, "what the sums of squares begin with",
                at_least(0))
      .optional("eps", &Options::eps, "added to the square root of the sum", above(0))
      .make(value, [&](const Options& o) { return std::make_shared<Adagrad>(o, isa); });
}

}  // namespace zt::optim
