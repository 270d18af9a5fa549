#include "block_merge.h"

#include <ATen/ATen.h>

#include <limits>

namespace zt::nn {

void merge_block(const BlockResult& sum, const BlockResult& block) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  const at::Tensor larger = at::maximum(sum.logsumexp, block.logsumexp);
  // If the query sees no key of either, any finite number will do: it only has to avoid inf - inf.
  const at::Tensor origin = larger.masked_fill_(larger == kHidden, 0);
  const at::Tensor before = (sum.logsumexp - origin).exp_(), here = (block.logsumexp - origin).exp_();
  const at::Tensor total = before + here;  // at least 1, or 0 if the query sees no key
  sum.logsumexp.copy_(total.log().add_(origin));
  total.clamp_min_(1);
  const int64_t B = larger.size(0), H = larger.size(1), S = larger.size(2);
  const auto scale = [&](const at::Tensor& out, const at::Tensor& weights) {
    out.view({B, S, H, -1}).mul_(weights.div_(total).transpose(1, 2).unsqueeze(3));
  };
  scale(sum.out, before);
  scale(block.out, here);
  sum.out.add_(block.out);
}

}  // namespace zt::nn
