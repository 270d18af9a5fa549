// The ranks of one communicator as one of them sees them. Plain data.
#pragma once

#include <string>
#include <vector>

namespace zt::comm {

struct Group {
  std::string name;        // the axis: "dp"
  int rank = 0;            // this rank's index in `ranks`
  std::vector<int> ranks;  // world ranks, in group order

  int size() const { return static_cast<int>(ranks.size()); }
  Group renamed(const std::string& other) const { return {other, rank, ranks}; }
  // Returns "rank 1 (world rank 5)", for error messages.
  std::string rank_name(int group_rank) const;
};

}  // namespace zt::comm
