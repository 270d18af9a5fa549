#include "norm.h"

#include "function.h"
#include "kernels.h"
#include "layers.h"
#include "part.h"
#include "rows.h"
#include "zt/options.h"

namespace zt::nn {

std::vector<std::string> norm_names() {
  return {"none", "layernorm", "rmsnorm"};
}

NormKind parse_norm(const std::string& name) {
  const auto names = norm_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) misuse("unknown norm '{}'{}", name, suggest(name, names));
  return static_cast<NormKind>(found - names.begin());
}

namespace {

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const at::Tensor& weight, double eps) {
    const at::Tensor rows = as_rows(x), out = at::empty_like(rows), reciprocal = at::empty({rows.size(0)}, rows.options());
    const int64_t width = rows.size(1);
    for_dtype(rows, [&](auto zero) {
      using T = decltype(zero);
      for_rows(rows.size(0), width, [&](int64_t begin, int64_t end) {
        kernels::rms_norm(out.data_ptr<T>() + begin * width, reciprocal.data_ptr<T>() + begin,
                          rows.const_data_ptr<T>() + begin * width, weight.const_data_ptr<T>(), eps, end - begin, width);
      });
    });
    node->save_for_backward({rows, weight, reciprocal});
    return in_shape_of(x, out);
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto saved = node->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &reciprocal = saved[2], dy = as_rows(grads[0]);
    const at::Tensor dx = at::empty_like(x), dweight = at::zeros_like(weight);
    const int64_t rows = x.size(0), width = x.size(1);
    for_dtype(x, [&](auto zero) {
      using T = decltype(zero);
      for_rows(rows, width, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * width;
        kernels::rms_norm_backward(dx.data_ptr<T>() + at, dy.const_data_ptr<T>() + at, x.const_data_ptr<T>() + at,
                                   weight.const_data_ptr<T>(), reciprocal.const_data_ptr<T>() + begin, end - begin, width);
      });
      kernels::rms_norm_weight(dweight.data_ptr<T>(), dy.const_data_ptr<T>(), x.const_data_ptr<T>(),
                               reciprocal.const_data_ptr<T>(), rows, width);
    });
    return {in_shape_of(grads[0], dx), dweight, {}};
  }
};

}  // namespace

Norm::Norm(NormKind kind, int64_t hidden, double eps, bool bias, const std::string& prefix) : kind_(kind), eps_(eps) {
  if (kind != NormKind::none) weight_ = make_vector(prefix + "weight", hidden, init_ones());
  if (kind == NormKind::layernorm && bias) bias_ = make_vector(prefix + "bias", hidden, init_zeros());
}

at::Tensor Norm::run(const at::Tensor& x, Context& /*context*/) const {
  if (kind_ == NormKind::none) return x;
  if (x.dim() < 1 || x.size(-1) != weight_->shape[0]) {
    misuse("'{}' takes [..., {}], got {}", weight_->name, weight_->shape[0], describe(x));
  }
  if (kind_ == NormKind::rmsnorm) return RmsNormFunction::apply(x, weight_->get(), eps_);
  return at::layer_norm(x, weight_->shape, weight_->get(), bias_ ? bias_->get() : at::Tensor(), eps_);
}

Params Norm::params() const {
  Params all;
  if (weight_) all.push_back(weight_);
  if (bias_) all.push_back(bias_);
  return all;
}

namespace {

struct NormOptions {
  int64_t hidden = 0;
  double eps = 1e-5;
  bool bias = true;
};

}  // namespace

std::shared_ptr<Layer> make_layernorm(const Value& value) {
  static const auto kSchema = Schema<NormOptions>("nn.layernorm")
                                  .required("hidden", &NormOptions::hidden, "columns", at_least(1))
                                  .optional("eps", &NormOptions::eps, "added to the variance", at_least(0))
                                  .optional("bias", &NormOptions::bias, "add a bias");
  const auto options = kSchema.parse(value);
  return layer_of("layernorm", Norm(NormKind::layernorm, options.hidden, options.eps, options.bias, ""));
}

std::shared_ptr<Layer> make_rmsnorm(const Value& value) {
  static const auto kSchema = Schema<NormOptions>("nn.rmsnorm")
                                  .required("hidden", &NormOptions::hidden, "columns", at_least(1))
                                  .optional("eps", &NormOptions::eps, "added to the mean square", at_least(0));
  const auto options = kSchema.parse(value);
  return layer_of("rmsnorm", Norm(NormKind::rmsnorm, options.hidden, options.eps, false, ""));
}

}  // namespace zt::nn
