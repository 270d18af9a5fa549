#include "context_axis.h"

namespace zt::nn {

const Schema<ContextOptions>& schema_of(const ContextOptions& /*options*/) {
  static const auto kSchema =
      token_cut_options(Schema<ContextOptions>("context"))
          .optional("method", &ContextOptions::method, "how keys and values come to the queries of other ranks")
          .optional("heads_at_once", &ContextOptions::heads_at_once,
                    "key heads whose keys and values are exchanged at a time; 0: all", at_least(0))
          .only_with("with method = \"ring\" or \"gather\"",
                     [](const ContextOptions& o) { return o.method != ContextMethod::ulysses; });
  return kSchema;
}

ContextAxis::ContextAxis(const std::optional<ContextOptions>& options, const std::string& path) {
  if (options) cut_ = token_cut_of(*options, path + ".context");
  if (!cut_) return;
  method_ = options->method;
  if (options->heads_at_once > 0) heads_at_once_ = options->heads_at_once;
  ranks_ = options->axis->size;
}

std::vector<std::string> ContextAxis::with(std::vector<std::string> axes) const {
  if (is_cut()) axes.push_back(name());
  return axes;
}

std::string ContextAxis::load(bool causal, int64_t window) const {
  if (!is_cut() || !causal || method_ == ContextMethod::ulysses) return {};
  if (window > 0) {
    return fmt::format(
        "with a window of {} tokens, the ranks of axis '{}' that have the first tokens compute less attention than others",
        window, name());
  }
  if (cut_->is_balanced) return {};
  std::vector<std::string> shares;  // of rank r of n: (2 r + 1) / n^2
  for (int rank = 0; rank < ranks_; ++rank) shares.push_back(fmt::format("{:.0f} %", 100.0 * (2 * rank + 1) / ranks_ / ranks_));
  return fmt::format(
      "with layout = \"contiguous\", the ranks of axis '{}' compute {} of causal attention: layout = \"balanced\" gives each "
      "as much",
      name(), fmt::join(shares, ", "));
}

}  // namespace zt::nn
