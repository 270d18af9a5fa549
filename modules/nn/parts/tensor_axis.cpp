#include "tensor_axis.h"

#include "zt/base/error.h"

namespace zt::nn {

TensorAxis::TensorAxis(const std::shared_ptr<Axis>& axis, const std::string& path) {
  if (!axis || axis->size == 1) return;
  if (axis->names.size() > 1)
    misuse("{}: '{}' joins several axes, and a layer is cut along a single one: give an axis of the mesh", path, axis->name);
  name_ = axis->name;
  ranks_ = axis->size;
}

void TensorAxis::check_enough(int64_t count, const char* things, const std::string& path) const {
  if (count < ranks_)
    misuse("{}: {} {} cannot be cut over the {} ranks of axis '{}': each needs at least one", path, count, things, ranks_, name_);
}

void TensorAxis::cut(Param& param, int dim, const std::vector<CutGroup>& groups) const {
  param.placements.push_back({name_, Placement::sharded, dim, ranks_, groups});
}

void TensorAxis::cut_rows(const Affine& affine, const std::vector<CutGroup>& groups) const {
  if (!is_cut()) return;
  for (const auto& param : affine.params()) cut(*param, 0, groups);
}

void TensorAxis::cut_columns(const Affine& affine, const std::vector<CutGroup>& groups) const {
  if (is_cut()) cut(*affine.weight, 1, groups);
}

void TensorAxis::sum(Param& param) const {
  if (is_cut()) param.placements.push_back({name_, Placement::replicated_other_data});
}

at::Tensor linear_of_parts(const at::Tensor& x, const Affine& affine, const TensorAxis& tensor, Context& context,
                           const at::Tensor& residual) {
  if (!tensor.is_cut()) return linear(x, affine, context, residual);
  return add_bias(tensor.leave(linear(x, {affine.weight, nullptr}, context), context), affine.bias, context, residual);
}

}  // namespace zt::nn
