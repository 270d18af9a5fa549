#include "sgd.h"

namespace zt::optim {

namespace {

struct SgdOptions : CommonOptions {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

template <Momentum kMomentum>
class Sgd final : public FlatOptimizer {
 public:
  Sgd(const SgdOptions& options, Isa isa)
      : FlatOptimizer("sgd",
                      kMomentum == Momentum::none ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"},
                      options, isa),
        options_(options) {}

 private:
  void step_segment(const ShardBuffers& shard, const Segment& segment, const ParamGroup& group, double lr,
                    const Scalars& scalars) const override {
    apply(shard, segment, [&]<class T>() {
      return SgdRule<T, kMomentum>{.grad_scale = static_cast<T>(scalars.grad_scale),
                                   .decay = static_cast<T>(group.weight_decay),
                                   .momentum = static_cast<T>(options_.momentum),
                                   .gain = static_cast<T>(scalars.step == 1 ? 1 : 1 - options_.dampening),
                                   .lr = static_cast<T>(lr)};
    });
  }

  SgdOptions options_;
};

std::shared_ptr<Optimizer> sgd_of(const SgdOptions& options, Isa isa) {
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    misuse("optim.sgd.nesterov needs momentum above 0 and dampening 0, got momentum = {}, dampening = {}", options.momentum,
           options.dampening);
  }
  if (options.momentum == 0) return std::make_shared<Sgd<Momentum::none>>(options, isa);
  if (options.nesterov) return std::make_shared<Sgd<Momentum::nesterov>>(options, isa);
  return std::make_shared<Sgd<Momentum::classic>>(options, isa);
}

}  // namespace

std::shared_ptr<Optimizer> make_sgd(const Value& value, Isa isa) {
  return common_options(Schema<SgdOptions>("optim.sgd"))
      .optional("momentum", &SgdOptions::momentum, "decay rate of the momentum buffer", between(0, 1))
      .optional("dampening", &SgdOptions::dampening, "1 - the gradient's weight in the buffer", between(0, 1))
      .only_with("with momentum above 0", [](const SgdOptions& o) { return o.momentum > 0 || o.dampening == 0; })
      .optional("nesterov", &SgdOptions::nesterov, "use Nesterov momentum")
      .make(value, [&](const SgdOptions& o) { return sgd_of(o, isa); });
}

}  // namespace zt::optim
