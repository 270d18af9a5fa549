#include "zt/model/token_options.h"

#include "zt/base/error.h"

namespace zt {

const Schema<TokenCutOptions>& schema_of(const TokenCutOptions& /*options*/) {
  static const Schema<TokenCutOptions> kSchema = token_cut_options(Schema<TokenCutOptions>("context"));
  return kSchema;
}

std::optional<TokenCut> token_cut_of(const TokenCutOptions& options, const std::string& path) {
  if (options.axis->names.size() > 1)
    misuse("{}: '{}' joins several axes, and tokens are cut along a single one: give an axis of the mesh", path,
           options.axis->name);
  if (options.axis->size == 1) return {};
  return TokenCut{options.axis->name, options.layout == TokenLayout::balanced, options.fields};
}

}  // namespace zt
