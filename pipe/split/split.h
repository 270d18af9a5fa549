// pipe.split: cuts a model into stages, and runs them by a schedule.
#pragma once

#include <memory>
#include <string>

#include "partition.h"
#include "schedule/schedule.h"
#include "zt/comm/mesh.h"
#include "zt/program/program.h"
#include "zt/program/rank_program.h"

namespace zt::pipe {

struct SplitOptions {
  std::shared_ptr<Axis> axis;  // whose ranks are the stages
  std::string name = {};       // of a recipe, for the axis's ranks and the program's micro-batches; or empty
  std::shared_ptr<const PipelineSchedule> schedule = {};  // instead of a name
  int chunks = 0;                                         // of a recipe; 0: its own
  PartitionRule partition = {};
};

// Returns the pass. It gives each rank of the axis the layers of its stages, in the order of the schedule, with SEND and RECV
// between them, and inserts REDUCE_TIE for parameters that several ranks use. Evaluation and generation run the same stages,
// forwards only. Gradients have the same bits as without the pass.
//
// Phase structure: it comes before passes of other phases. Throws Misuse for an unknown name and for a schedule that `check`
// refuses. `apply` throws Misuse if the schedule has another number of ranks than the axis or of micro-batches than the program,
// if the partition does not fit the model, and if another pass has changed the layers' order before.
std::shared_ptr<Pass> make_split(SplitOptions options);

// Returns the program with another schedule: a name, or if that is empty, `schedule`. Axis and partition stay. Throws Misuse if
// the program has no pipe.split, and as make_split.
std::shared_ptr<Program> with_schedule(const Program& program, std::string name,
                                       std::shared_ptr<const PipelineSchedule> schedule);

}  // namespace zt::pipe
