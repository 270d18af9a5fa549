// Dropout (Srivastava et al. 2014). Its mask does not depend on how samples, their tokens and columns are distributed over ranks
// and micro-batches.
#pragma once

#include <optional>
#include <vector>

#include "matmul_input.h"
#include "params.h"
#include "zt/base/box.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Returns x with the elements times `scale` where `keep` is 1, else 0, plus `residual` if it is defined. All of one shape,
// contiguous; keep: uint8.
at::Tensor scale_kept(const at::Tensor& x, const at::Tensor& keep, const at::Tensor& residual, double scale);

// Which elements of a sample a tensor has: `lines` runs of `width` elements. Run i begins with element first + i * stride of the
// sample, at place + i * pitch of the tensor's part of that sample.
struct SampleLines {
  int64_t first, lines, stride, width;
  int64_t place, pitch;
};

// Decides which elements of a tensor [samples, ...] dropout keeps. The decision is a function of (the context's dropout stream,
// the sample's index in the global batch, the element's index in the sample, index). A layer with several dropouts gives each
// another `index`. Any part of the mask can be computed, in any order. Threads: any.
class DropoutMask {
 public:
  DropoutMask(double probability, const Context& context, int index);

  // Sets kept[j], for j < count, to 1 if element first + j of the micro-batch's sample is kept, else to 0.
  void fill(uint8_t* kept, int64_t sample, int64_t first, int64_t count) const;
  // Returns the mask of a tensor [samples, ...] as bytes 0 and 1; on the device meta, only allocates it. `first`: the number of
  // its first element in a sample, for a tensor of consecutive elements of larger samples.
  at::Tensor mask(at::IntArrayRef shape, at::Device device = at::kCPU, int64_t first = 0) const;
  // The same for a tensor that has these elements of each sample.
  at::Tensor mask(at::IntArrayRef shape, at::Device device, const std::vector<SampleLines>& parts) const;
  // Throws Misuse if there are no independent random numbers for all elements of a sample.
  static void check_elements(double of_sample);
  // Returns the factor of kept elements.
  double scale() const { return 1 / (1 - probability_); }

 private:
  void fill_lines(const at::Tensor& mask, const SampleLines& part) const;

  double probability_;
  Philox stream_;
  int64_t first_sample_, first_element_;
};

// The columns that a tensor has of a larger one.
struct OwnColumns {
  Share own;
  int64_t total = 0;
};

// Whether dim 1 of a tensor is the tokens of its samples. `unknown`: it is, if tokens are cut over ranks and the tensor has three
// dims or more.
enum class HasTokens : uint8_t { unknown, yes, no };

inline HasTokens has_tokens_of(std::optional<bool> option) {
  return !option ? HasTokens::unknown : *option ? HasTokens::yes : HasTokens::no;
}

class Dropout {
 public:
  // `recompute`: whether the backward draws the mask again instead of keeping it.
  explicit Dropout(double probability, int index = 0, LayerRecompute recompute = LayerRecompute::none,
                   HasTokens has_tokens = HasTokens::unknown)
      : probability_(probability), index_(index), recompute_(recompute), has_tokens_(has_tokens) {}

  bool is_active(const Context& context) const { return probability_ > 0 && context.mode == Mode::train; }
  // In mode train, sets each element of x to 0 with `probability` and divides the others by 1 - probability. In other modes,
  // returns x. Adds `residual` if it is defined. x: [samples, tokens, ...], or without tokens: then it counts as equal on ranks
  // that share a sample. `tokens`: which of the rank's tokens x has, if not all. `columns`: which columns of the last dim it has,
  // if not all. Throws Misuse if tokens are cut over ranks, and dim 1 is not clearly the rank's tokens.
  at::Tensor run(const at::Tensor& x, Context& context, const at::Tensor& residual = {}, std::optional<Share> tokens = {},
                 std::optional<OwnColumns> columns = {}) const;
  // Returns a function that draws the mask of such an x of this shape.
  std::function<at::Tensor()> draw(const DropoutMask& keep, const std::vector<int64_t>& shape, at::Device device,
                                   Context& context, std::optional<Share> tokens, std::optional<OwnColumns> columns) const;

 private:
  // Returns whether x has some of the tokens of its samples.
  bool has_some_tokens(const std::vector<int64_t>& shape, Context& context, std::optional<Share> tokens) const;

  double probability_;
  int index_;
  LayerRecompute recompute_;
  HasTokens has_tokens_;
};

}  // namespace zt::nn
