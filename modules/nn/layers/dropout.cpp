#include "parts/dropout.h"

#include "layers.h"
#include "part.h"
#include "zt/base/options.h"

namespace zt::nn {

std::shared_ptr<Layer> make_dropout(const Value& value) {
  struct Options {
    double p = 0;
  };
  static const auto kSchema =
      Schema<Options>("nn.dropout").required("p", &Options::p, "probability that an element is set to 0", between(0, 0.999));
  return kSchema.make(value, [](const Options& o) { return layer_of("dropout", Dropout(o.p)); });
}

}  // namespace zt::nn
