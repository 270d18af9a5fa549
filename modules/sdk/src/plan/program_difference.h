// Where the programs that two ranks have built differ.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zt/comm/comm.h"
#include "zt/program/rank_program.h"

namespace zt {

// Returns the first differences between the programs that `rank` and rank 0 have built for all ranks, as a sentence: "In the
// program of rank 1, action 12 is 'B 2 0' on rank 2 and 'R 2 0' on rank 0." Collective over `control`, with one `rank` on all
// ranks.
std::string first_difference(const std::vector<std::shared_ptr<const RankProgram>>& mine, int rank, Communicator& control);

}  // namespace zt
