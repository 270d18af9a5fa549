#include "huggingface/split/match_behavior.h"

#include "zt/base/error.h"

namespace zt::data::huggingface {

MatchBehavior behavior_from(const JsonFields& fields, std::string_view name) {
  const std::string value = fields.text(name);
  if (value == "Removed") return MatchBehavior::removed;
  if (value == "Isolated") return MatchBehavior::isolated;
  if (value == "MergedWithPrevious") return MatchBehavior::merged_with_previous;
  if (value == "MergedWithNext") return MatchBehavior::merged_with_next;
  if (value == "Contiguous") return MatchBehavior::contiguous;
  fault("{}: '{}' is not supported: it must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
        fields.place_of(name), value);
}

}  // namespace zt::data::huggingface
