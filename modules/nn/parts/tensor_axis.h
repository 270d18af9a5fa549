// Tensor parallelism of a layer: the ranks of a mesh axis share its matrices and see the same samples (Shoeybi et al. 2019). With
// sequence parallelism (Korthikanti et al. 2022), each of them has a share of the tokens of the residual stream, outside of the
// matrices.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parts/affine.h"
#include "zt/base/options.h"
#include "zt/comm/mesh.h"
#include "zt/model/axis_ops.h"
#include "zt/model/layer.h"

namespace zt::nn {

// The types in which the parts of sums travel.
enum class SumType : uint8_t { fp32, fp64, bf16, fp16 };
constexpr auto words_of(SumType) {
  return std::array{"fp32", "fp64", "bf16", "fp16"};
}

// The options of layers whose matrices can be cut.
struct TensorAxisOptions {
  std::shared_ptr<Axis> tensor = {};     // over whose ranks the matrices are cut
  std::optional<SumType> tp_dtype = {};  // of the parts of sums; nothing: the parameters' type
  bool sequence_parallel = false;        // of the residual stream each rank has a share of the tokens
  std::optional<bool> overlap = {};      // move inputs and gradients beside matmuls; nothing: on GPUs
};

// Adds `tensor` to a schema. Options derives from TensorAxisOptions. `cut` says what is cut.
template <class Options>
Schema<Options>&& tensor_option(Schema<Options>&& schema, const char* cut) {
  return std::move(schema).optional("tensor", &Options::tensor, std::string("mesh axis over whose ranks ") + cut);
}

// Adds `tensor` and `tp_dtype`, for layers whose parts are summed.
template <class Options>
Schema<Options>&& tensor_sum_options(Schema<Options>&& schema, const char* cut) {
  return tensor_option(std::move(schema), cut)
      .optional("tp_dtype", &Options::tp_dtype,
                "type in which the parts of sums over the axis travel; default: the parameters' type")
      .only_with("with tensor", [](const Options& o) { return o.tensor != nullptr; });
}

// Adds `tensor`, `tp_dtype` and `overlap`, for layers that communicate beside their own matmuls.
template <class Options>
Schema<Options>&& tensor_options(Schema<Options>&& schema, const char* cut = "the matrices are cut") {
  return tensor_sum_options(std::move(schema), cut)
      .optional("overlap", &Options::overlap, "communicate over the axis beside matmuls; default: on GPUs")
      .only_with("with tensor", [](const Options& o) { return o.tensor != nullptr; });
}

// Adds `sequence_parallel` to a schema that has these.
template <class Options>
Schema<Options>&& stream_options(Schema<Options>&& schema) {
  return std::move(schema)
      .optional("sequence_parallel", &Options::sequence_parallel,
                "between the matrices each rank of the axis has a share of the tokens")
      .only_with("with tensor", [](const Options& o) { return o.tensor != nullptr; });
}

// The axis over whose ranks a layer's matrices are cut. A layer without one, or with an axis of one rank, is whole: then the
// functions change nothing.
class TensorAxis {
 public:
  TensorAxis() = default;
  // `path`: of the layer, for messages. Throws Misuse for a joined axis.
  TensorAxis(const TensorAxisOptions& options, const std::string& path);

  bool is_cut() const { return ranks_ > 1; }
  // Returns the axis over which the tokens of the residual stream are cut (Output::cut_over); empty: none.
  std::string stream_axis() const { return is_stream_cut_ ? name_ : ""; }
  // Returns which of this rank's tokens it has of the residual stream; nothing if all, as in mode generate.
  std::optional<Share> own_tokens(Context& context) const;
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

  // Cut a parameter: rows of the weight, its bias and the B of its adapters, or columns of the weight and of their A. The groups
  // are cut each by itself. What is whole of adapters gets a part of its gradient on each rank. `dim`: the dim of the rows.
  void cut_rows(const Affine& affine, const std::vector<CutGroup>& groups, int dim = 0) const;
  void cut_columns(const Affine& affine, const std::vector<CutGroup>& groups, int dim = 0) const;
  // States that the ranks see other data of whole parameters, so that their gradients are summed over them.
  void sum(const Params& params) const;
  // States it if the ranks have other tokens of the residual stream, on which the parameters work.
  void sum_over_stream(const Params& params) const {
    if (is_stream_cut_) sum(params);
  }

  // Returns x of the residual stream for the ranks' parts of the work: all tokens. Gradients are summed in the backward.
  at::Tensor enter(const at::Tensor& x, Context& context) const;
  // Returns the ranks' shares of dim `dim`, joined to `total`, for parts of the work.
  at::Tensor gather_parts(const at::Tensor& share, int64_t dim, int64_t total, Context& context) const {
    return gather_from(context, name_, share, dim, total, GatherUse::in_parts, sums_);
  }
  // Returns how a matmul's input enters and its result leaves. `x`: any tensor on the layer's device.
  Crossing crossing(const at::Tensor& x, Context& context) const;
  // Returns the sum of the ranks' parts of a result, for the residual stream.
  at::Tensor leave(const at::Tensor& part, Context& context) const;
  // Returns x of the residual stream with all tokens, for layers that know nothing of the axis and do the same on all ranks.
  at::Tensor show(const at::Tensor& x, Context& context) const;
  // Returns what such layers have made, equal on all ranks, for the residual stream.
  at::Tensor take(const at::Tensor& x, Context& context) const;

 private:
  void cut(Param& param, int dim, const std::vector<CutGroup>& groups) const;

  std::string name_;
  int ranks_ = 1;
  bool is_stream_cut_ = false;
  SumDtype sums_ = {};
  std::optional<bool> overlap_ = {};
};

// Returns x W^T + b [..., out], where each rank has some rows of W and b.
at::Tensor linear_into_parts(const MatmulInput& x, const Affine& affine, const TensorAxis& tensor, Context& context);
// Returns x W^T + b [..., out], plus `residual` if it is defined, where each rank has some columns of W and of x. The bias and
// the residual are added once, after the sum.
at::Tensor linear_of_parts(const MatmulInput& x, const Affine& affine, const TensorAxis& tensor, Context& context,
                           const at::Tensor& residual = {});

}  // namespace zt::nn
