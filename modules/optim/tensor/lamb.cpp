#include "lamb.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "flat/betas.h"
#include "tensor_optimizer.h"

namespace zt::optim {

namespace {

struct LambOptions : CommonOptions {
  Betas betas{0.9, 0.999};
  double eps = 1e-8, min_coeff = 0.01, max_coeff = 10;
  bool bias_correction = true;
};

class Lamb final : public TensorOptimizer {
 public:
  explicit Lamb(const LambOptions& options) : TensorOptimizer("lamb", {"exp_avg", "exp_avg_sq"}, options), options_(options) {}

 private:
  void update(const OwnedTensor& tensor, const at::Tensor& grad, const TensorRate& rate) const override {
    const double beta1 = options_.betas[0], beta2 = options_.betas[1];
    at::Tensor values = tensor.values, m = tensor.state.at("exp_avg"), v = tensor.state.at("exp_avg_sq");
    m.add_(grad - m, 1 - beta1);
    v.add_(grad * grad - v, 1 - beta2);
    const auto t = static_cast<double>(rate.step);
    const double scale1 = options_.bias_correction ? 1 / (1 - std::pow(beta1, t)) : 1;
    const double scale2 = options_.bias_correction ? 1 / std::sqrt(1 - std::pow(beta2, t)) : 1;
    at::Tensor change = (m * scale1).div_(v.sqrt().mul_(scale2).add_(options_.eps));
    if (rate.weight_decay > 0) change.add_(values, rate.weight_decay);
    const auto of_values = values.norm().item<double>(), of_change = change.norm().item<double>();
    const bool is_known = of_values > 0 && of_change > 0;
    const double ratio = is_known ? std::clamp(of_values / of_change, options_.min_coeff, options_.max_coeff) : 1;
    values.add_(change, -rate.lr * ratio);
  }

  LambOptions options_;
};

std::shared_ptr<Optimizer> lamb_of(const LambOptions& options) {
  if (options.min_coeff > options.max_coeff)
    misuse("optim.lamb.min_coeff ({}) is above max_coeff ({})", options.min_coeff, options.max_coeff);
  return std::make_shared<Lamb>(options);
}

}  // namespace

std::shared_ptr<Optimizer> make_lamb(const Value& value) {
  using Options = LambOptions;
  return common_options(Schema<Options>("optim.lamb"))
      .optional("betas", &Options::betas, "decay rates of the averages of the gradient and of its square", check_betas)
      .optional("eps", &Options::eps, "added to the square root of the averaged square", above(0))
      .optional("bias_correction", &Options::bias_correction, "divide the averages by their weights so far")
      .optional("min_coeff", &Options::min_coeff, "lower bound of the ratio of the norms", above(0))
      .optional("max_coeff", &Options::max_coeff, "upper bound of the ratio of the norms", above(0))
      .make(value, lamb_of);
}

}  // namespace zt::optim
