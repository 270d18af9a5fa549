#include "norms/norm.h"

#include "layers.h"
#include "part.h"
#include "zt/base/options.h"

namespace zt::nn {

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
  return kSchema.make(
      value, [](const NormOptions& o) { return layer_of("layernorm", Norm(NormKind::layernorm, o.hidden, o.eps, o.bias, "")); });
}

std::shared_ptr<Layer> make_rmsnorm(const Value& value) {
  static const auto kSchema = Schema<NormOptions>("nn.rmsnorm")
                                  .required("hidden", &NormOptions::hidden, "columns", at_least(1))
                                  .optional("eps", &NormOptions::eps, "added to the mean square", at_least(0));
  return kSchema.make(
      value, [](const NormOptions& o) { return layer_of("rmsnorm", Norm(NormKind::rmsnorm, o.hidden, o.eps, false, "")); });
}

}  // namespace zt::nn
