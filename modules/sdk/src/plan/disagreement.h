// Says in which action, unit or option the ranks of a run built different programs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zt/comm/comm.h"
#include "zt/program/program.h"

namespace zt {

// What a rank has built: the programs of all ranks, and the lines of text that all ranks must have alike besides.
struct Built {
  const std::vector<std::shared_ptr<const Program>>& programs;
  std::string common;
};

// Returns the first differences between what `rank` and rank 0 have built, as a sentence: "In the program of rank 1, action 12 is
// 'B 2 0' on rank 2 and 'R 2 0' on rank 0." Empty if there is none. Collective over `control`, with one `rank` on all ranks.
std::string first_difference(const Built& mine, int rank, Communicator& control);

}  // namespace zt
