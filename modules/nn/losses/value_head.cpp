#include "value_head.h"

#include "layers/layers.h"
#include "parts/function.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

namespace {

// Takes h [samples, seq, hidden], outputs `values` [samples, seq] in float32 (float64 for float64). With sequence parallelism h
// has this rank's share of the tokens, and the output has all.
class ValueHead final : public Layer, public LayerExtras {
 public:
  explicit ValueHead(const ValueHeadOptions& options)
      : norm_(options.norm, options.hidden, options.eps, options.norm_bias, "norm."), tensor_(options, "nn.value_head") {
    affine_ = make_affine("value.", options.hidden, 1, options.bias ? Bias::yes : Bias::no, init_normal(0, options.std));
    affine_.weight->packing = Packing::none;  // one row
    tensor_.sum_over_stream(norm_.params());
  }

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    if (in[0].dim() != 3) misuse("nn.value_head takes h [samples, seq, hidden], got {}", describe(in[0]));
    const at::Tensor h = norm_.run(in_dtype_of(*affine_.weight, in[0], context), context);
    const at::Tensor values = linear(tensor_.show(h, context), affine_, context).squeeze(-1);
    return {values.to(wide_dtype(values.scalar_type()))};
  }
  Params params() const override { return joined({norm_.params(), affine_.params()}); }
  Io io() const override {
    Io io{.inputs = {"h"}, .outputs = {{.name = "values"}}};
    io.cut_inputs["h"] = tensor_.stream_axis();
    return io;
  }
  std::vector<std::string> axes() const override { return tensor_.axes(); }
  std::vector<std::string> tensor_axes() const override { return tensor_.axes(); }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "value_head"; }

 private:
  Norm norm_;
  Affine affine_;
  TensorAxis tensor_;
};

}  // namespace

std::shared_ptr<Layer> value_head_layer(const ValueHeadOptions& options) {
  return std::make_shared<ValueHead>(options);
}

std::shared_ptr<Layer> make_value_head(const Value& value) {
  static const auto kSchema =
      stream_options(tensor_option(Schema<ValueHeadOptions>("nn.value_head"), "the matrices of the blocks are cut"))
          .required("hidden", &ValueHeadOptions::hidden, "columns of the input", at_least(1))
          .optional("norm", &ValueHeadOptions::norm, "norm before the head")
          .optional("eps", &ValueHeadOptions::eps, "eps of the norm", at_least(0))
          .only_with("with a norm", [](const ValueHeadOptions& o) { return o.norm != NormKind::none; })
          .optional("norm_bias", &ValueHeadOptions::norm_bias, "add a bias in the norm")
          .only_with("with norm = \"layernorm\"", [](const ValueHeadOptions& o) { return o.norm == NormKind::layernorm; })
          .optional("bias", &ValueHeadOptions::bias, "add a bias")
          .optional("std", &ValueHeadOptions::std, "standard deviation of the initial weights", at_least(0));
  return kSchema.make(value, value_head_layer);
}

}  // namespace zt::nn
