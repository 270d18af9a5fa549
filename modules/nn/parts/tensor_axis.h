// Tensor parallelism of a layer: the ranks of a mesh axis share its matrices and see the same samples (Shoeybi et al. 2019).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parts/affine.h"
#include "zt/comm/mesh.h"
#include "zt/model/axis_ops.h"
#include "zt/model/layer.h"

namespace zt::nn {

// The axis over whose ranks a layer's matrices are cut. A layer without one, or with an axis of one rank, is whole: then the
// functions change nothing.
class TensorAxis {
 public:
  TensorAxis() = default;
  // `path`: of the option, for messages. Throws Misuse for a joined axis.
  TensorAxis(const std::shared_ptr<Axis>& axis, const std::string& path);

  bool is_cut() const { return ranks_ > 1; }
  int ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  // Returns what Layer::axes and LayerExtras::tensor_axes return.
  std::vector<std::string> axes() const { return is_cut() ? std::vector<std::string>{name_} : std::vector<std::string>{}; }
  // Returns this rank's share of `total` things.
  Share share(int64_t total, Context& context) const {
    return is_cut() ? share_of(total, ranks_, context.rank_along(name_)) : Share{0, total};
  }
  // Throws Misuse, with `path`, unless there is at least one of `count` things for each rank.
  void check_enough(int64_t count, const char* things, const std::string& path) const;

  // Cut a parameter: rows of the weight and its bias, or columns of the weight. The groups are cut each by itself.
  void cut_rows(const Affine& affine, const std::vector<CutGroup>& groups) const;
  void cut_columns(const Affine& affine, const std::vector<CutGroup>& groups) const;
  // States that the ranks see other data of a whole parameter, so that its gradient is summed over them.
  void sum(Param& param) const;

  // Returns x, which is equal on all ranks, for the ranks' parts of the work: gradients are summed in the backward.
  at::Tensor enter(const at::Tensor& x, Context& context) const { return is_cut() ? copy_to(context, name_, x) : x; }
  // Returns the sum of the ranks' parts of the result.
  at::Tensor leave(const at::Tensor& part, Context& context) const { return is_cut() ? reduce_from(context, name_, part) : part; }

 private:
  void cut(Param& param, int dim, const std::vector<CutGroup>& groups) const;

  std::string name_;
  int ranks_ = 1;
};

// Returns x W^T + b [..., out], plus `residual` if it is defined, where each rank has some columns of W and of x. The bias and
// the residual are added once, after the sum.
at::Tensor linear_of_parts(const at::Tensor& x, const Affine& affine, const TensorAxis& tensor, Context& context,
                           const at::Tensor& residual = {});

}  // namespace zt::nn
