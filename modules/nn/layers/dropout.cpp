#include "parts/dropout.h"

#include "layers.h"
#include "part.h"
#include "parts/tensor_axis.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

struct DropoutOptions : TensorAxisOptions {
  double p = 0;
  std::optional<bool> tokens;
  int64_t columns = 0;  // of all ranks
};

class DropoutPart {
 public:
  explicit DropoutPart(const DropoutOptions& options)
      : dropout_(options.p, 0, LayerRecompute::none, has_tokens_of(options.tokens)),
        columns_(options.columns),
        tensor_(options, "nn.dropout") {
    if (tensor_.is_cut()) tensor_.check_enough(columns_, "columns", "nn.dropout");
  }
  at::Tensor run(const at::Tensor& x, Context& context) const {
    if (!tensor_.is_cut()) return dropout_.run(x, context);
    const Share own = tensor_.share(columns_, context);
    if (x.dim() != 3 || x.size(2) != own.count)
      misuse("nn.dropout takes h [samples, tokens, {}], this rank's share of the {} columns, got {}", own.count, columns_,
             describe(x));
    return dropout_.run(x, context, {}, {}, OwnColumns{own, columns_});
  }
  Params params() const { return {}; }
  const TensorAxis& tensor() const { return tensor_; }

 private:
  Dropout dropout_;
  int64_t columns_;
  TensorAxis tensor_;
};

}  // namespace

std::shared_ptr<Layer> make_dropout(const Value& value) {
  static const auto kSchema =
      Schema<DropoutOptions>("nn.dropout")
          .required("p", &DropoutOptions::p, "probability that an element is set to 0", between(0, 0.999))
          .optional("tokens", &DropoutOptions::tokens, "whether dim 1 is the tokens, where ranks have other tokens of a sample")
          .optional("tensor", &DropoutOptions::tensor, "mesh axis over whose ranks the columns of h are cut")
          .optional("columns", &DropoutOptions::columns, "columns of h over all ranks of the axis", at_least(1))
          .only_with("with tensor", [](const DropoutOptions& o) { return o.tensor != nullptr; });
  return kSchema.make(value, [](const DropoutOptions& o) {
    if (o.tensor && o.columns == 0)
      misuse("nn.dropout: with tensor each rank has some columns of h: give `columns`, their number over all ranks");
    return layer_of("dropout", DropoutPart(o));
  });
}

}  // namespace zt::nn
