// Schedules as text, and as the CSV files of PyTorch.
#pragma once

#include <string>

#include "schedule.h"

namespace zt::pipe {

// The text form:
//
//   ztoolkit schedule 2                 a name and the version of the format
//   ranks 2 chunks 2 micro_batches 2    ranks, stages per rank, micro-batches
//   placement v                         loop, v, or by_stage followed by the rank of each stage
//   rank 0: 0F0 (0F1;3B0) 3B1 ...       the steps of each rank, in order of ranks
//   rank 1: ...
std::string to_text(const PipelineSchedule& schedule);
// Reads what to_text returns. Throws Misuse, with the number of the line, for another text, version or number of ranks.
// Mistakes of the schedule itself are found by `check`.
PipelineSchedule from_text(const std::string& text);

// PyTorch's form (torch.distributed.pipelining): a row per rank, a cell per step: 0F0, 1I3, 1W3, 0B1, (0F5;3B2)OVERLAP_F_B; an
// empty cell is an idle slot.
std::string to_csv(const PipelineSchedule& schedule);
// Reads such rows, with or without cells of communication (0UNSHARD, 1SEND_F0, 0RECV_B2, 0REDUCE_GRAD, ...), which are left out:
// pipe.split inserts its own. Older files write BW for a whole backward and B for one for the inputs: B is read so if any cell
// has BW, or if there is a W beside a B of the same stage and micro-batch. The placement and the numbers of stages and
// micro-batches follow from the cells. Throws Misuse, with row and cell, and as check_size.
PipelineSchedule from_csv(const std::string& csv);

// Returns the text without the mark that some editors put in front of UTF-8. Both readers skip it.
std::string without_byte_order_mark(const std::string& text);

}  // namespace zt::pipe
