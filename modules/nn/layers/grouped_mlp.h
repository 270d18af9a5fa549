// Several independent MLPs in one layer, each for its own rows: the experts of a mixture of experts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mlp.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

struct GroupedMlpOptions : MlpOptions {
  int64_t groups = 0;               // number of MLPs on all ranks
  std::optional<std::string> axis;  // mesh axis whose ranks hold `groups` / `parts` consecutive MLPs each
  int parts = 1;                    // ranks of that axis
  // Multiply the rows of all groups by one call of at::_grouped_mm. By default in bfloat16 on CUDA, where it is one kernel, if
  // there are no biases, the matrices are not packed and the widths are multiples of 8, as that kernel requires. If it is true,
  // the matrices cannot be packed.
  std::optional<bool> grouped_gemm;
};

// Reads `rows` [n, hidden] and `group_rows`, int64 [groups / parts] on the CPU: the number of consecutive rows of each MLP of
// this rank. Zeros are allowed, and n may be 0. Outputs `rows` [n, hidden], where each row went through the MLP of its group.
// Each group gives the bits of an nn.mlp on its rows if there is one GEMM per group. On the device meta, `group_rows` is not
// read. With `tensor`, the ranks of that axis have equal inputs and share the columns inside each MLP; their results are summed,
// and then the biases of `down` are added.
class GroupedMlp final : public Layer, public LayerExtras {
 public:
  // Makes the parameters up.weight [groups, columns_before(ffn), hidden] and down.weight [groups, hidden, ffn], with biases
  // up.bias [groups, columns_before(ffn)] and down.bias [groups, hidden] if options.bias. With `axis`, a rank holds `groups` /
  // `parts` consecutive groups of them. Throws Misuse if `parts` does not divide `groups`, or is above 1 without an
  // axis, for grouped_gemm with biases, and if `axis` and `tensor` are one axis.
  explicit GroupedMlp(const GroupedMlpOptions& options);

  // Throws Misuse if the inputs have other shapes or dtypes, if `group_rows` does not sum to n, or for grouped_gemm in float64.
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override { return joined({up_.params(), down_.params()}); }
  Io io() const override { return {.inputs = {"rows", "group_rows"}, .outputs = {{"rows"}}}; }
  std::vector<std::string> axes() const override { return tensor_axes(); }
  std::vector<std::string> tensor_axes() const override { return tensor_.axes(); }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "grouped_mlp"; }

 private:
  void check_grouped_gemm(const at::Tensor& rows) const;
  bool uses_grouped_gemm(const at::Tensor& rows) const;
  // Returns whether `hidden`, and `ffn` on each rank, are multiples of this number. All ranks say the same.
  bool are_multiples_of(int64_t multiple) const;

  Activation activation_;
  Affine up_, down_;  // of all groups of this rank
  std::optional<bool> grouped_gemm_;
  TensorAxis tensor_;
};

}  // namespace zt::nn
