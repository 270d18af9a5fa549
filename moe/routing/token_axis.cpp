#include "routing/token_axis.h"

#include "zt/base/error.h"

namespace zt::moe {

const Schema<TokenAxisOptions>& schema_of(const TokenAxisOptions&) {
  static const auto kSchema =
      Schema<TokenAxisOptions>("moe.router.context")
          .required("axis", &TokenAxisOptions::axis, "mesh axis over whose ranks the tokens of samples are cut")
          .optional("layout", &TokenAxisOptions::layout, "which tokens a rank has")
          .optional("fields", &TokenAxisOptions::fields, "names of the batch fields with a number per token");
  return kSchema;
}

std::optional<TokenCut> token_cut_of(const std::optional<TokenAxisOptions>& options) {
  if (!options || options->axis->size == 1) return {};
  if (options->axis->names.size() > 1)
    misuse("moe.router.context: '{}' joins several axes, and tokens are cut along a single one: give an axis of the mesh",
           options->axis->name);
  return TokenCut{options->axis->name, options->layout == TokenLayout::balanced, options->fields};
}

bool has_cut_tokens(Context& context) {
  return context.tokens().of_rank.size() > 1;
}

std::vector<Share> token_places(int64_t tokens, Context& context) {
  if (!has_cut_tokens(context)) return {{0, tokens}};
  int64_t own = 0;
  for (const Share& range : context.tokens().own()) own += range.count;
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
