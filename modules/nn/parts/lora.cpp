#include "lora.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "dropout.h"
#include "function.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/gemm/gemm.h"

namespace zt::nn {

void freeze_base(const Params& params) {
  for (const auto& param : params) param->trainable = param->is_adapter;
}

Params Lora::params() const {
  Params all;
  for (const LoraPart& part : parts) all.insert(all.end(), {part.a, part.b});
  return all;
}

Lora make_lora(const Param& weight, const std::string& prefix, const std::optional<LoraOptions>& options,
               const std::vector<LoraRows>& rows, LoraInput input) {
  Lora lora;
  if (!options) return lora;
  lora.dropout = options->dropout;
  lora.dropout_index = static_cast<int>(input);
  const int64_t in = weight.shape[1];
  const auto otherwise = [](const auto& others, const std::string& name, auto usual) {
    const auto found = others.find(name);
    return found == others.end() ? usual : found->second;
  };
  for (const LoraRows& each : rows) {
    if (!options->has_target(each.target)) continue;
    const int64_t rank = otherwise(options->ranks, each.target, options->rank);
    const double alpha = otherwise(options->alphas, each.target, options->alpha), r = static_cast<double>(rank);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    const InitFn init = options->init == LoraInit::kaiming ? init_uniform(-bound, bound) : init_normal(0, 1 / r);
    const std::string name = prefix + "lora." + each.target;
    const double scale = alpha / (options->scale == LoraScale::by_rank ? r : std::sqrt(r));
    LoraPart& part = lora.parts.emplace_back(
        LoraPart{each.first, each.rows, scale, make_param(name + ".a", {rank, in}, init, true, {"rank", "in"}),
                 make_param(name + ".b", {each.rows, rank}, init_zeros(), true, {"out", "rank"})});
    part.a->is_adapter = part.b->is_adapter = true;
  }
  return lora;
}

namespace {

// Returns how many of the rows [0, row) of a matrix the rank has. `row` is where a group of the cut ends.
int64_t own_rows_before(const Param& weight, int64_t row, Context& context) {
  for (const AxisPlacement& on : weight.placements) {
    if (on.placement != Placement::sharded || on.dim != 0) continue;
    int64_t own = 0, first = 0;
    for (const CutGroup& group : on.groups) {
      if (first < row) own += share_of(group.size / group.unit, on.parts, context.rank_along(on.axis)).count * group.unit;
      first += group.size;
    }
    return own;
  }
  return row;
}

// Returns the columns of a matrix that the rank has, if not all.
std::optional<OwnColumns> own_columns(const Param& weight, Context& context) {
  for (const AxisPlacement& on : weight.placements) {
    if (on.placement != Placement::sharded || on.dim != 1) continue;
    const CutGroup& group = on.groups.front();  // the columns are one
    const Share units = share_of(group.size / group.unit, on.parts, context.rank_along(on.axis));
    return OwnColumns{{units.begin * group.unit, units.count * group.unit}, group.size};
  }
  return {};
}

}  // namespace

LoraValues::LoraValues(const Lora& lora, const Param& weight, Context& context, const at::Tensor& x, const Crossing& enter) {
  std::vector<at::Tensor> all;
  int64_t ranks = 0;
  for (const LoraPart& part : lora.parts) {
    const at::Tensor &a = all.emplace_back(context.param(*part.a).detach()), &b = context.param(*part.b);
    const int64_t first = own_rows_before(weight, part.first, context);
    parts_.push_back({first, b.size(0), ranks, a.size(0), part.scale, b.detach()});
    ranks += a.size(0);
    has_gradient_ |= at::GradMode::is_enabled() && (context.param(*part.a).requires_grad() || b.requires_grad());
    sinks_.push_back(context.grad_sink(*part.a));
    sinks_.push_back(context.grad_sink(*part.b));
  }
  a_ = all.size() == 1 ? all.front() : at::cat(all);
  std::vector<int64_t> shape = enter.sizes(x);
  shape.back() = a_.size(1);
  rows_ = c10::multiply_integers(shape.begin(), shape.end() - 1);
  const Dropout dropout(lora.dropout, lora.dropout_index);
  if (!dropout.is_active(context)) return;
  const DropoutMask keep(lora.dropout, context, lora.dropout_index);
  kept_scale_ = keep.scale();
  draw_ = [draw = dropout.draw(keep, shape, x.device(), context, {}, own_columns(weight, context)), in = a_.size(1)] {
    return draw().view({-1, in});
  };
}

LoraPass::LoraPass(const std::shared_ptr<LoraValues>& values)
    : values_(values.get()), mask_(values && values->draw_ ? values->draw_() : at::Tensor()) {}

at::Tensor LoraPass::dropped(const at::Tensor& x, int64_t first) const {
  return mask_.defined() ? scale_kept(x.contiguous(), rows_of(mask_, first, x.size(0)), {}, values_->kept_scale_) : x;
}

// Returns the rows of `all` [rows of the input, ranks], which is allocated at the first use. `like` has as many rows as are
// wanted.
at::Tensor LoraPass::kept_rows(at::Tensor& all, const at::Tensor& like, int64_t first) const {
  if (!all.defined()) all = at::empty({values_->rows_, values_->a_.size(0)}, like.options());
  return rows_of(all, first, like.size(0));
}

void LoraPass::add(const at::Tensor& y, const at::Tensor& x, int64_t first) const {
  if (!values_) return;
  const at::Tensor low =
      values_->has_gradient_ ? kept_rows(values_->low_, x, first) : at::empty({x.size(0), values_->a_.size(0)}, x.options());
  gemm(GemmKind::forward, dropped(x, first), values_->a_.t(), low);
  for (const LoraValues::Part& part : values_->parts_)
    gemm(GemmKind::forward, low.narrow(1, part.first_rank, part.rank), part.b.t(), y.narrow(1, part.first, part.rows), 1,
         part.scale);
}

void LoraPass::add_input_gradient(const at::Tensor& dx, const at::Tensor& dy, int64_t first) const {
  if (!values_) return;
  const at::Tensor of_low = kept_rows(values_->low_gradient_, dy, first);
  for (const LoraValues::Part& part : values_->parts_)
    gemm(GemmKind::input_gradient, dy.narrow(1, part.first, part.rows), part.b, of_low.narrow(1, part.first_rank, part.rank), 0,
         part.scale);
  if (!dx.defined()) return;
  if (!mask_.defined()) return gemm(GemmKind::input_gradient, of_low, values_->a_, dx, 1);
  const at::Tensor of_dropped = at::empty_like(dx);
  gemm(GemmKind::input_gradient, of_low, values_->a_, of_dropped);
  at::Tensor to = dx;
  to.add_(dropped(of_dropped, first));
}

void LoraPass::for_gradients(const at::Tensor& dy, const at::Tensor& x, int64_t first, const AddGradient& add) const {
  if (!values_ || !values_->has_gradient_) return;
  const at::Tensor in = dropped(x, first), low = kept_rows(values_->low_, x, first);
  const at::Tensor of_low = kept_rows(values_->low_gradient_, dy, first);
  size_t index = 0;
  for (const LoraValues::Part& part : values_->parts_) {
    add(index++, of_low.narrow(1, part.first_rank, part.rank), in, 1);
    add(index++, dy.narrow(1, part.first, part.rows), low.narrow(1, part.first_rank, part.rank), part.scale);
  }
}

}  // namespace zt::nn
