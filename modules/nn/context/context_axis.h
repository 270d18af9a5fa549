// Context parallelism of attention: the ranks of a mesh axis have other tokens of the same samples.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "zt/model/token_options.h"

namespace zt::nn {

// How a query's keys and values come to it.
enum class ContextMethod : uint8_t {
  ring,     // those of each rank go from rank to rank (Liu et al. 2023)
  gather,   // each rank gathers those of all (Grattafiori et al. 2024)
  ulysses,  // each rank gets all tokens of some heads (Jacobs et al. 2023)
};
constexpr auto words_of(ContextMethod) {
  return std::array{"ring", "gather", "ulysses"};
}

struct ContextOptions : TokenCutOptions {
  ContextMethod method = ContextMethod::ring;
  int64_t heads_at_once = 0;
};
const Schema<ContextOptions>& schema_of(const ContextOptions& options);

// The axis over whose ranks the tokens are cut. Without one, or with an axis of one rank, a layer needs whole samples.
class ContextAxis {
 public:
  ContextAxis() = default;
  // `path`: of the layer's options, for messages. Throws Misuse for a joined axis.
  ContextAxis(const std::optional<ContextOptions>& options, const std::string& path);

  bool is_cut() const { return cut_.has_value(); }
  int ranks() const { return ranks_; }
  ContextMethod method() const { return method_; }
  // Key heads whose keys and values are exchanged at a time, at least 1.
  int64_t heads_at_once() const { return heads_at_once_; }
  // What LayerExtras::token_cut returns.
  const std::optional<TokenCut>& token_cut() const { return cut_; }
  const std::string& name() const { return cut_->axis; }
  // Returns `axes` with this axis.
  std::vector<std::string> with(std::vector<std::string> axes) const;
  // Returns a sentence about the ranks' shares of the pairs of queries and keys, if they are uneven; else nothing.
  std::string load(bool causal, int64_t window) const;

 private:
  static constexpr int64_t kAllHeads = std::numeric_limits<int64_t>::max();

  std::optional<TokenCut> cut_;
  ContextMethod method_ = ContextMethod::ring;
  int64_t heads_at_once_ = kAllHeads;
  int ranks_ = 1;
};

}  // namespace zt::nn
