#include <cmath>

#include "layers.h"
#include "part.h"
#include "parts/tensor_axis.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

struct LinearOptions : TensorAxisOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
  std::optional<double> std;
  std::string split = "none";
  std::optional<LoraOptions> lora = {};
};

class Linear {
 public:
  // Without `std`, weights and bias are initialised uniformly in +-1 / sqrt(in), as in PyTorch. With `std`, weights are normal
  // and the bias is zero. Cut over ranks, it takes all columns and returns this rank's (split "out"), or takes this rank's
  // columns and returns all ("in").
  explicit Linear(const LinearOptions& options) : joins_(options.split == "in") {
    if (options.tensor && options.split == "none")
      misuse("nn.linear: option 'tensor' needs split = \"out\", where each rank has some columns of the output, or \"in\"");
    const double bound = 1 / std::sqrt(static_cast<double>(options.in));
    const InitFn init = options.std ? init_normal(0, *options.std) : init_uniform(-bound, bound);
    affine_ = make_affine("", options.in, options.out, options.bias ? Bias::yes : Bias::no, init);
    if (options.bias && !options.std) affine_.bias->init = init;
    affine_.lora = make_lora(*affine_.weight, "", options.lora, {{kLinearTarget, 0, options.out}}, LoraInput::linear);
    tensor_ = TensorAxis(options, "nn.linear");
    tensor_.check_enough(joins_ ? options.in : options.out, "columns", "nn.linear");
    if (joins_) tensor_.cut_columns(affine_, {{options.in, 1}});
    else tensor_.cut_rows(affine_, {{options.out, 1}});
  }
  at::Tensor run(const at::Tensor& x, Context& context) const {
    return joins_ ? linear_of_parts(x, affine_, tensor_, context) : linear_into_parts(x, affine_, tensor_, context);
  }
  Params params() const { return affine_.params(); }
  const TensorAxis& tensor() const { return tensor_; }

 private:
  Affine affine_;
  TensorAxis tensor_;
  bool joins_;  // each rank has some of the input's columns, else of the output's
};

}  // namespace

std::shared_ptr<Layer> make_linear(const Value& value) {
  static const auto kSchema =
      tensor_options(Schema<LinearOptions>("nn.linear"), "the matrix is cut")
          .required("in", &LinearOptions::in, "columns of the input", at_least(1))
          .required("out", &LinearOptions::out, "columns of the output", at_least(1))
          .optional("bias", &LinearOptions::bias, "add a bias")
          .optional("std", &LinearOptions::std, "standard deviation of normal initial weights", at_least(0))
          .optional("split", &LinearOptions::split, "which columns ranks share: those of the output or of the input",
                    one_of({"none", "out", "in"}))
          .only_with("with tensor", [](const LinearOptions& o) { return o.tensor != nullptr; })
          .optional("lora", &LinearOptions::lora, "an adapter of the matrix, which is frozen with its bias");
  return kSchema.make(value, [](const LinearOptions& options) {
    return make_with_lora(options, kSchema.name(), {kLinearTarget}, {kLinearTarget},
                          [](const auto& o) { return layer_of("linear", Linear(o)); });
  });
}

}  // namespace zt::nn
