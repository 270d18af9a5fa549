#include "exchange/layer_parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

at::Tensor as_rows(const at::Tensor& x) {
  const int64_t columns = x.size(-1);
  return x.contiguous().view({columns == 0 ? 0 : x.numel() / columns, columns});
}

at::Tensor routes_on_host(const at::Tensor& experts) {
  return as_rows(experts.cpu());
}

at::Tensor gradient_or_zeros(const at::Tensor& gradient, const at::Tensor& value) {
  return gradient.defined() ? gradient.contiguous() : at::zeros_like(value);
}

void check_tokens(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options) {
  if (tokens.dim() < 2 || tokens.size(-1) != options.hidden) misuse("takes [..., {}], got {}", options.hidden, describe(tokens));
  const auto leading = [](const at::Tensor& x) { return x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)); };
  if (experts.dim() != tokens.dim() || experts.scalar_type() != at::kLong || leading(experts) != leading(tokens))
    misuse("the experts of tokens {} must be int64 of the same leading shape, got {}", describe(tokens), describe(experts));
}

Communicator* comm_of(const ExchangeOptions& options, Context& context) {
  return options.ranks == 1 ? nullptr : &context.comm(options.axis);
}

std::vector<std::string> axes_of(const ExchangeOptions& options) {
  return options.ranks == 1 ? std::vector<std::string>() : std::vector<std::string>{options.axis};
}

Io dispatch_io() {
  return {.inputs = {"h", "route_experts"}, .outputs = {{"rows"}, {"group_rows", false}, {"places", false}, {"traffic", false}}};
}

Io combine_io(const ExchangeOptions& options) {
  Io io{.inputs = {"rows", "route_weights", "places", "traffic"}, .outputs = {{"h"}}};
  if (options.has_shared) io.inputs.emplace_back("shared");
  return io;
}

int64_t padded_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode) {
  if (!options.padding) return -1;
  if (experts.dim() != 3) misuse("padding needs tokens of samples, [samples, tokens, hidden], got experts {}", describe(experts));
  const bool per_sample = options.padding->per == "sample";
  const int64_t samples = experts.size(0), tokens = experts.size(1), routes = experts.size(2), all = samples * tokens;
  const int64_t room = options.padding->rows(mode == Mode::train, per_sample ? tokens : all, routes, options.experts);
  return per_sample ? samples * room : room;
}

ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options,
                                        Mode mode) {
  const int64_t padded = padded_rows(experts, options, mode);
  const auto balanced = static_cast<int64_t>(std::ceil(static_cast<double>(experts.numel()) * options.planned_rows));
  const int64_t rows = padded >= 0 ? padded * options.experts : balanced;
  const auto numbers = [&](at::IntArrayRef shape) { return at::empty(shape, experts.options()); };
  const int64_t routes = experts.size(-1);
  const std::vector<at::Tensor> outputs{
      at::empty({rows, options.hidden}, tokens.options()), numbers({options.experts / options.ranks}),
      numbers({experts.numel() / std::max<int64_t>(1, routes), routes}), numbers({2 * options.experts})};
  const auto backward = [tokens](at::TensorList) { return ExchangeLayer::Exchanged{{at::empty_like(tokens), {}}, {}}; };
  return {{outputs, {}}, backward};
}

ExchangeLayer::Backward planned_combine(at::TensorList in) {
  return [in = in.vec()](at::TensorList gradients) {
    ExchangeLayer::Exchanged gone{{at::empty_like(in[0]), at::empty_like(in[1]), {}, {}}, {}};
    if (in.size() > 4) gone.tensors.push_back(gradients[0]);
    return gone;
  };
}

}  // namespace zt::moe
