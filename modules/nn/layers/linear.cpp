#include <cmath>

#include "layers.h"
#include "part.h"
#include "parts/affine.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

struct LinearOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
  std::optional<double> std;
};

class Linear {
 public:
  static constexpr bool kSplits = true;

  // Without `std`, weights and bias are initialised uniformly in +-1 / sqrt(in), as in PyTorch. With `std`, weights are normal
  // and the bias is zero.
  explicit Linear(const LinearOptions& options) {
    const double bound = 1 / std::sqrt(static_cast<double>(options.in));
    const InitFn init = options.std ? init_normal(0, *options.std) : init_uniform(-bound, bound);
    affine_ = make_affine("", options.in, options.out, options.bias ? Bias::yes : Bias::no, init);
    if (options.bias && !options.std) affine_.bias->init = init;
  }
  at::Tensor run(const at::Tensor& x, Context& context) const { return linear(x, affine_, context); }
  Params params() const { return affine_.params(); }

 private:
  Affine affine_;
};

}  // namespace

std::shared_ptr<Layer> make_linear(const Value& value) {
  static const auto kSchema =
      Schema<LinearOptions>("nn.linear")
          .required("in", &LinearOptions::in, "columns of the input", at_least(1))
          .required("out", &LinearOptions::out, "columns of the output", at_least(1))
          .optional("bias", &LinearOptions::bias, "add a bias")
          .optional("std", &LinearOptions::std, "standard deviation of normal initial weights", at_least(0));
  return kSchema.make(value, [](const LinearOptions& o) { return layer_of("linear", Linear(o)); });
}

}  // namespace zt::nn
