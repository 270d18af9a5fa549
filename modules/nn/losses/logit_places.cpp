#include "logit_places.h"

#include <ATen/ATen.h>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::nn {

void check_logit_places(const at::Tensor& places, int64_t samples, int64_t tokens) {
  if (places.scalar_type() != at::kLong || places.dim() != 2 || places.size(0) != samples)
    misuse(
        "the batch's logits_of must be int64 [samples, n] with {} samples, the places of the tokens whose logits are wanted, got {}",
        samples, describe(places));
  if (places.is_meta()) return;
  const at::Tensor on_host = places.cpu().contiguous();
  const auto* place = on_host.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < on_host.numel(); ++i) {
    if (place[i] >= 0 && place[i] < tokens) continue;
    misuse("logits_of names the token {} at sample {}, index {}, but samples have {} tokens, counted from 0", place[i],
           i / places.size(1), i % places.size(1), tokens);
  }
}

at::Tensor rows_at(const at::Tensor& h, const at::Tensor& places) {
  const int64_t samples = h.size(0), tokens = h.size(1), hidden = h.size(2);
  check_logit_places(places, samples, tokens);
  const at::Tensor first = at::arange(samples, places.options()).mul_(tokens).unsqueeze(1);
  const at::Tensor rows = (places + first).reshape({-1}).to(h.device());
  return h.reshape({-1, hidden}).index_select(0, rows).view({samples, places.size(1), hidden});
}

}  // namespace zt::nn
