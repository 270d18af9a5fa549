#include "routing/token_axis.h"

#include "zt/base/error.h"

namespace zt::moe {

bool has_cut_tokens(Context& context) {
  return context.tokens().of_rank.size() > 1;
}

std::vector<Share> token_places(int64_t tokens, Context& context) {
  if (!has_cut_tokens(context)) return {{0, tokens}};
  const int64_t own = context.tokens().count();
  if (own != tokens)
    misuse(
        "it gets {} per sample, and this rank has {} of the {} that the mesh axis cuts: put it where `h` has one row per token",
        counted(tokens, "row"), own, counted(context.tokens().total, "token"));
  return context.tokens().own();
}

void sum_along(const std::string& axis, const at::Tensor& sums, Context& context) {
  const int ranks = context.ranks_along(axis);
  if (ranks == 1) return;
  context.sent(axis, 2 * static_cast<int64_t>(sums.nbytes()) * (ranks - 1) / ranks, Pattern::collective);
  if (!sums.is_meta()) context.control(axis).all_reduce(sums, sums).synchronize();
}

}  // namespace zt::moe
