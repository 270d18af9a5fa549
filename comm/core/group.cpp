#include "group.h"

#include <fmt/format.h>

#include <numeric>

#include "zt/process/world.h"

namespace zt::comm {

std::string Group::rank_name(int group_rank) const {
  const auto index = static_cast<size_t>(group_rank);
  return fmt::format("rank {} (world rank {})", made_as.empty() ? group_rank : made_as[index], ranks[index]);
}

Group whole_group(const World& world, const std::string& name) {
  Group group{name, world.rank, std::vector<int>(static_cast<size_t>(world.size))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

}  // namespace zt::comm
