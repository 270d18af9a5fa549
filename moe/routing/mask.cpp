#include "routing/mask.h"

#include <ATen/ATen.h>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

// Returns where the batch field is not 0.
at::Tensor nonzero_places(const TokenShape& shape, const std::string& field, Context& context) {
  const at::Tensor values = context.batch(field);
  const int64_t sizes[] = {shape.samples, shape.tokens};
  if (values.sizes() != at::IntArrayRef(sizes))
    misuse(
        "the batch field '{}' says which tokens count, so it must be [{}, {}], one number per token, got {}: give the router "
        "another field by `mask`, or mask = \"none\"",
        field, shape.samples, shape.tokens, describe(values));
  return values.cpu().ne(0).flatten();
}

at::Tensor given_tokens(const TokenShape& shape, const std::string& mask, Context& context) {
  if (!mask.empty()) return nonzero_places(shape, mask, context);
  if (context.has_batch("loss_mask")) return nonzero_places(shape, "loss_mask", context);
  return context.has_batch("padding") ? nonzero_places(shape, "padding", context).logical_not() : at::Tensor();
}

}  // namespace

at::Tensor counted_tokens(const TokenShape& shape, const std::string& mask, Context& context) {
  if (mask == "none") return {};
  const at::Tensor counted = given_tokens(shape, mask, context);
  return counted.defined() && counted.all().item<bool>() ? at::Tensor() : counted;
}

}  // namespace zt::moe
