// Low-rank adapters of a matrix W [out, in] (LoRA, Hu et al. 2021): y = x W^T + scale (drop(x) A^T) B^T. A [rank, in] and
// B [rows, rank] are trained and W is frozen. An adapter changes all rows of W, or some: those of the queries, say.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossing.h"
#include "params.h"
#include "zt/base/options.h"
#include "zt/model/layer.h"

namespace zt::nn {

enum class LoraScale : uint8_t { by_rank, by_root };
constexpr auto words_of(LoraScale) {
  return std::array{"alpha/r", "alpha/sqrt(r)"};
}
// How A begins: uniform in +-1 / sqrt(in), as PEFT's layers do, or normal with a standard deviation of 1 / rank. B begins as 0.
enum class LoraInit : uint8_t { kaiming, gaussian };
constexpr auto words_of(LoraInit) {
  return std::array{"kaiming", "gaussian"};
}

struct LoraOptions {
  int64_t rank = 16;
  double alpha = 32, dropout = 0;
  LoraScale scale = LoraScale::by_rank;
  LoraInit init = LoraInit::kaiming;
  std::optional<std::vector<std::string>> targets = {};  // nothing: those that the layer says
  std::optional<std::vector<int64_t>> layers = {};       // blocks of nn.gpt with adapters; nothing: all
  // Other ranks and alphas, by target ("q") or, in nn.gpt, by block and target ("blocks.3.q").
  std::map<std::string, int64_t> ranks = {};
  std::map<std::string, double> alphas = {};

  bool has_target(const std::string& name) const;
};
const Schema<LoraOptions>& schema_of(const LoraOptions& options);

// The matrices that may have adapters, or parts of them, by the kinds of layers. "qkv" and "up" are whole fused matrices, of
// which the names before them are parts; gate and up_proj are those of an MLP with swiglu.
inline const std::vector<std::string> kAttentionTargets{"q", "k", "v", "qkv", "out"};
inline const std::vector<std::string> kMlpTargets{"gate", "up_proj", "up", "down"};
inline const std::string kHeadTarget = "head", kLinearTarget = "linear";
inline const std::vector<std::string> kUsualTargets{"q", "v"};
// Returns the targets of a block.
std::vector<std::string> block_targets();

// Returns the options with targets, those in `otherwise` if none are given. Throws Misuse, with the name `path` of the layer's
// function, unless all targets are in `known` and no two have rows in common, and unless `ranks` and `alphas` name targets and
// `layers` is absent, as in any layer but nn.gpt.
LoraOptions lora_of_layer(LoraOptions options, const std::string& path, const std::vector<std::string>& known,
                          const std::vector<std::string>& otherwise);
// Returns the options of block number `block` of nn.gpt, from those with targets; nothing for a block without adapters.
std::optional<LoraOptions> lora_of_block(const std::optional<LoraOptions>& options, int64_t block);
// Throws Misuse unless nn.gpt with `blocks` blocks has the blocks and targets that the options name. Returns them with targets.
LoraOptions lora_of_model(LoraOptions options, int64_t blocks);

// Freezes all parameters but those of adapters.
void freeze_base(const Params& params);

// Makes a layer by `make` from the options of a layer other than nn.gpt. If they have adapters, freezes its other parameters.
// The rest as lora_of_layer.
template <class Options, class Make>
auto make_with_lora(Options options, const std::string& path, const std::vector<std::string>& known,
                    const std::vector<std::string>& otherwise, const Make& make) {
  if (options.lora) options.lora = lora_of_layer(std::move(*options.lora), path, known, otherwise);
  auto layer = make(options);
  if (options.lora) freeze_base(layer->params());
  return layer;
}

// An adapter of the rows [first, first + rows) of a matrix.
struct LoraPart {
  int64_t first = 0, rows = 0;
  double scale = 1;
  std::shared_ptr<Param> a, b;
};

// The adapters of a matrix, by ascending rows.
struct Lora {
  std::vector<LoraPart> parts = {};
  double dropout = 0;
  int dropout_index = 0;

  bool is_empty() const { return parts.empty(); }
  Params params() const;
};

// Dropout indices of the inputs of adapters (DropoutMask), after those of a block.
enum class LoraInput : int { qkv = 3, out, up, down, head, linear };

// Rows of a matrix that may have an adapter, by the name of the target.
struct LoraRows {
  std::string target;
  int64_t first = 0, rows = 0;
};
// Makes the adapters of `weight` for those of `rows` that the options name, with parameters `prefix`lora.TARGET.a and .b.
Lora make_lora(const Param& weight, const std::string& prefix, const std::optional<LoraOptions>& options,
               const std::vector<LoraRows>& rows, LoraInput input);

// The values of a matrix's adapters in one forward and its backward, as this rank holds them, and what the backward keeps of it:
// [rows, ranks] of the products with A and their gradient. A part of the backward that runs later reads no parameter: other
// values may be in their place then.
class LoraValues {
 public:
  // `x`, which comes over `enter`, has the dims of the matrix's input but the last.
  LoraValues(const Lora& lora, const Param& weight, Context& context, const at::Tensor& x, const Crossing& enter);

  // Returns whether autograd records the forward, and a parameter has a gradient.
  bool has_gradient() const { return has_gradient_; }
  const std::vector<Context::SinkFn>& sinks() const { return sinks_; }  // of A and B, for one part after the other

 private:
  friend class LoraPass;
  struct Part {
    int64_t first, rows;       // of this rank's rows of the matrix
    int64_t first_rank, rank;  // of the rows of `a_`
    double scale;
    at::Tensor b;
  };

  at::Tensor a_;  // of all parts, one after the other
  std::vector<Part> parts_;
  std::vector<Context::SinkFn> sinks_;
  bool has_gradient_ = false;
  int64_t rows_ = 0;                  // of the input
  std::function<at::Tensor()> draw_;  // the dropout mask of the input, [rows, in]; null: nothing is dropped
  double kept_scale_ = 1;
  at::Tensor low_, low_gradient_;  // x A^T, and its gradient; undefined before they are computed
};

// Computes with adapters for some rows of their input at a time. Holds the dropout mask as long as it lives. Does nothing for
// null. `first`: number of the first of the rows among all.
class LoraPass {
 public:
  explicit LoraPass(const std::shared_ptr<LoraValues>& values);

  // Adds the adapters' part of y, without autograd. y: [rows, out], x: [rows, in].
  void add(const at::Tensor& y, const at::Tensor& x, int64_t first = 0) const;
  // Adds their part of the gradient of x. dx: [rows, in], or undefined: then it only prepares for_gradients. dy: [rows, out].
  void add_input_gradient(const at::Tensor& dx, const at::Tensor& dy, int64_t first = 0) const;
  // If a parameter has a gradient, calls add(i, dy, x, alpha) for each, in the order of LoraValues::sinks: its gradient is alpha
  // dy^T x. Requires `add` and add_input_gradient of these rows. Reads no parameter.
  using AddGradient = std::function<void(size_t, const at::Tensor& dy, const at::Tensor& x, double alpha)>;
  void for_gradients(const at::Tensor& dy, const at::Tensor& x, int64_t first, const AddGradient& add) const;

 private:
  at::Tensor dropped(const at::Tensor& x, int64_t first) const;
  at::Tensor kept_rows(at::Tensor& all, const at::Tensor& like, int64_t first) const;

  LoraValues* values_;
  at::Tensor mask_;
};

}  // namespace zt::nn
