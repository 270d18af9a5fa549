#include "group.h"

#include <fmt/format.h>

namespace zt::comm {

std::string Group::rank_name(int group_rank) const {
  const auto index = static_cast<size_t>(group_rank);
  return fmt::format("rank {} (world rank {})", made_as.empty() ? group_rank : made_as[index], ranks[index]);
}

}  // namespace zt::comm
