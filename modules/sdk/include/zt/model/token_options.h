// The option `context` of layers: how the ranks of a mesh axis share the tokens of samples.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/options.h"
#include "zt/comm/mesh.h"
#include "zt/model/tokens.h"

namespace zt {

enum class TokenLayout : uint8_t { balanced, contiguous };
constexpr auto words_of(TokenLayout) {
  return std::array{"balanced", "contiguous"};
}

struct TokenCutOptions {
  std::shared_ptr<Axis> axis;
  TokenLayout layout = TokenLayout::balanced;
  std::vector<std::string> fields = TokenCut{}.fields;
};
const Schema<TokenCutOptions>& schema_of(const TokenCutOptions& options);

// Adds these options to a schema. Options derives from TokenCutOptions.
template <class Options>
Schema<Options>&& token_cut_options(Schema<Options>&& schema) {
  return std::move(schema)
      .required("axis", &Options::axis, "mesh axis over whose ranks the tokens of samples are cut")
      .optional("layout", &Options::layout, "which tokens a rank has")
      .optional("fields", &Options::fields, "names of the batch fields with a number per token");
}

// Returns what LayerExtras::token_cut returns: nothing for an axis of one rank. `path`: of the option, for messages. Throws
// Misuse for a joined axis.
std::optional<TokenCut> token_cut_of(const TokenCutOptions& options, const std::string& path);

}  // namespace zt
