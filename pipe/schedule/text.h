// Schedules as text, and as the CSV files of PyTorch.
#pragma once

#include <string>

#include "schedule.h"

namespace zt::pipe {

// The text form:
//
//   ztoolkit schedule 1                 a name and the version of the format
//   stages 2 chunks 2 micro_batches 2   ranks, stages per rank, micro-batches
//   placement v                         loop, v, or by_stage followed by the rank of each stage
//   rank 0: 0F0 (0F1;3B0) 3B1 ...       the steps of each rank, in order of ranks
//   rank 1: ...
std::string to_text(const Schedule& schedule);
// Reads what to_text returns. Throws Misuse, with the number of the line, for another text, version or number of ranks.
// Mistakes of the schedule itself are found by `check`.
Schedule from_text(const std::string& text);

// PyTorch's form (torch.distributed.pipelining): a row per rank, a cell per step: 0F0, 1I3, 1W3, 0B1, (0F5;3B2)OVERLAP_F_B; an
// empty cell is an idle slot.
std::string to_csv(const Schedule& schedule);
// Reads such rows. Older files write BW for a whole backward and B for one for the inputs: if any cell has BW, B is read so.
// The placement and the numbers of stages and micro-batches follow from the cells. Throws Misuse, with row and cell.
Schedule from_csv(const std::string& csv);

}  // namespace zt::pipe
