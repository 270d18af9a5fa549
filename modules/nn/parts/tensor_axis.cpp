#include "tensor_axis.h"

#include "zt/base/error.h"

namespace zt::nn {

namespace {

at::ScalarType dtype_of(SumType type) {
  constexpr std::array kTypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  return kTypes[static_cast<size_t>(type)];
}

// Returns the number of this rank's tokens of a sample.
int64_t count_tokens(Context& context) {
  const int64_t count = context.tokens().count();
  if (count == 0)
    misuse("sequence_parallel shares the tokens of samples, and the batch has none: it needs a field 'tokens' [samples, tokens]");
  return count;
}

}  // namespace

TensorAxis::TensorAxis(const TensorAxisOptions& options, const std::string& path) {
  const auto& axis = options.tensor;
  if (!axis || axis->size == 1) return;
  if (axis->names.size() > 1)
    misuse("{}.tensor: '{}' joins several axes, and a layer is cut along a single one: give an axis of the mesh", path,
           axis->name);
  name_ = axis->name;
  ranks_ = axis->size;
  is_stream_cut_ = options.sequence_parallel;
  if (options.tp_dtype) sums_ = dtype_of(*options.tp_dtype);
  overlap_ = options.overlap;
}

std::optional<Share> TensorAxis::own_tokens(Context& context) const {
  if (!is_stream_cut_ || context.mode == Mode::generate) return {};
  return share(count_tokens(context), context);
}

at::Tensor TensorAxis::enter(const at::Tensor& x, Context& context) const {
  if (!is_cut()) return x;
  if (!own_tokens(context)) return copy_to(context, name_, x, sums_);
  return gather_from(context, name_, x, 1, count_tokens(context), GatherUse::in_parts, sums_);
}

Crossing TensorAxis::crossing(const at::Tensor& x, Context& context) const {
  if (!is_cut()) return {};
  const std::optional<int64_t> tokens = own_tokens(context) ? std::optional(count_tokens(context)) : std::nullopt;
  return {context, name_, tokens, sums_, overlap_.value_or(x.is_cuda())};
}

at::Tensor TensorAxis::leave(const at::Tensor& part, Context& context) const {
  if (!is_cut()) return part;
  if (!own_tokens(context)) return reduce_from(context, name_, part, sums_);
  return reduce_scatter_to(context, name_, part, 1, sums_);
}

at::Tensor TensorAxis::show(const at::Tensor& x, Context& context) const {
  return own_tokens(context) ? gather_from(context, name_, x, 1, count_tokens(context), GatherUse::alike) : x;
}

at::Tensor TensorAxis::take(const at::Tensor& x, Context& context) const {
  return own_tokens(context) ? scatter_to(context, name_, x, 1) : x;
}

void TensorAxis::check_enough(int64_t count, const char* things, const std::string& path) const {
  if (count < ranks_)
    misuse("{}: {} {} cannot be cut over the {} ranks of axis '{}': each needs at least one; take an axis of fewer ranks", path,
           count, things, ranks_, name_);
}

void TensorAxis::cut(Param& param, int dim, const std::vector<CutGroup>& groups) const {
  param.placements.push_back({name_, Placement::sharded, dim, ranks_, groups});
}

void TensorAxis::cut_rows(const Affine& affine, const std::vector<CutGroup>& groups, int dim) const {
  if (!is_cut()) return;
  cut(*affine.weight, dim, groups);
  if (affine.bias) cut(*affine.bias, dim, groups);
  for (const LoraPart& part : affine.lora.parts) {
    std::vector<CutGroup> of_part;
    int64_t first = 0;
    for (const CutGroup& group : groups) {
      if (first >= part.first && first < part.first + part.rows) of_part.push_back(group);
      first += group.size;
    }
    cut(*part.b, 0, of_part);
    sum({part.a});
  }
}

void TensorAxis::cut_columns(const Affine& affine, const std::vector<CutGroup>& groups, int dim) const {
  if (!is_cut()) return;
  cut(*affine.weight, dim + 1, groups);
  for (const LoraPart& part : affine.lora.parts) {
    cut(*part.a, 1, groups);
    sum({part.b});
  }
}

void TensorAxis::sum(const Params& params) const {
  if (!is_cut()) return;
  for (const auto& param : params) param->placements.push_back({name_, Placement::replicated_other_data});
}

at::Tensor linear_into_parts(const MatmulInput& x, const Affine& affine, const TensorAxis& tensor, Context& context) {
  return linear(x, affine, context, {}, tensor.crossing(x.value, context));
}

at::Tensor linear_of_parts(const MatmulInput& x, const Affine& affine, const TensorAxis& tensor, Context& context,
                           const at::Tensor& residual) {
  if (!tensor.is_cut()) return linear(x, affine, context, residual);
  const at::Tensor sum = linear(x, affine.without_bias(), context, {}, {}, tensor.crossing(x.value, context));
  return add_bias(sum, affine.bias, context, residual);
}

}  // namespace zt::nn
