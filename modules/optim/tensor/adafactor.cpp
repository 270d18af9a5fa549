#include "adafactor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/norm.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor_optimizer.h"

namespace zt::optim {

namespace {

struct AdafactorOptions : CommonOptions {
  double beta2_decay = -0.8, eps2 = 1e-3, d = 1;
  std::optional<double> eps1;
};

class Adafactor final : public TensorOptimizer {
 public:
  explicit Adafactor(const AdafactorOptions& options)
      : TensorOptimizer("adafactor", {"row_var", "col_var", "variance"}, options), options_(options) {}

  // Of torch's shapes [..., rows, 1] and [..., 1, columns].
  std::vector<StateInfo> states_of(const ParamInfo& param) const override {
    const std::vector<int64_t>& shape = param.shape;
    if (shape.size() < 2) return {{"variance", shape}};
    std::vector<int64_t> rows = shape, columns = shape;
    rows.back() = 1;
    columns[columns.size() - 2] = 1;
    return {{"row_var", rows}, {"col_var", columns}};
  }

 private:
  void update(const OwnedTensor& tensor, const at::Tensor& grad, const TensorRate& rate) const override {
    at::Tensor values = tensor.values;
    const bool is_double = values.scalar_type() == at::kDouble;
    const double eps1 =
        options_.eps1.value_or(is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
    const auto step = static_cast<double>(rate.step), count = static_cast<double>(std::max<int64_t>(1, values.numel()));
    const double new_share = std::pow(step, options_.beta2_decay);
    const double rho = std::min(rate.lr, 1 / std::sqrt(step));
    const double alpha = std::max(options_.eps2, values.norm().item<double>() / std::sqrt(count)) * rho;
    if (rate.weight_decay > 0) values.mul_(1 - rate.lr * rate.weight_decay);
    const at::Tensor change = averaged_square(tensor, grad, new_share, eps1).clamp_min_(eps1 * eps1).rsqrt_().mul_(grad);
    const double denominator = std::max(1.0, change.norm().item<double>() / (std::sqrt(count) * options_.d));
    values.add_(change, -alpha / denominator);
  }

  static at::Tensor averaged_square(const OwnedTensor& tensor, const at::Tensor& grad, double new_share, double eps1) {
    if (grad.dim() < 2) {
      at::Tensor variance = tensor.state.at("variance");
      return variance.lerp_(grad * grad, new_share).clone();
    }
    at::Tensor rows = tensor.state.at("row_var"), columns = tensor.state.at("col_var");
    const auto mean_square = [&](int64_t dim) { return at::norm(grad, 2, {dim}, true).square_().div_(grad.size(dim)); };
    rows.lerp_(mean_square(-1), new_share);
    columns.lerp_(mean_square(-2), new_share);
    return at::matmul(rows, columns).div_(rows.mean({-2}, true).clamp_min_(eps1));
  }

  AdafactorOptions options_;
};

}  // namespace

std::shared_ptr<Optimizer> make_adafactor(const Value& value) {
  using Options = AdafactorOptions;
  return common_options(Schema<Options>("optim.adafactor"))
      .optional("beta2_decay", &Options::beta2_decay, "the averages' weight of the present square is step ^ beta2_decay",
                between(-1, 0))
      .optional("eps1", &Options::eps1, "least root of an averaged square; by default the epsilon of the master's dtype",
                above(0))
      .optional("eps2", &Options::eps2, "least root mean square of the values by which the rate is scaled", above(0))
      .optional("d", &Options::d, "largest root mean square of a step before the rate", at_least(1))
      .make(value, [](const Options& o) { return std::make_shared<Adafactor>(o); });
}

}  // namespace zt::optim
