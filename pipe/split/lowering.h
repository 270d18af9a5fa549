// Turns a schedule into the actions of a rank: layers, and the messages between ranks.
#pragma once

#include <string>
#include <vector>

#include "partition.h"
#include "schedule/schedule.h"
#include "zt/program/rank_program.h"

namespace zt::pipe {

struct Cut {
  const ModelInfo& model;
  const Partition& partition;     // of as many stages as the schedule has
  std::vector<std::string> axes;  // of the pipeline
};

// Returns the layers and messages of a rank, in order: F, B, I and W of the positions of each task's stage.
//
// A value that other stages read is sent by the rank that computes it, once to each rank that needs it. Its gradient goes the way
// back from stage to stage, among those that read a differentiable output. Each adds its own part, so that it is summed in the
// same order as on one rank. A message is sent as soon as its content is there, and received right before it is needed, after
// those that were sent before it. A channel is as deep as the messages that are under way if all stages take the same time, so no
// rank ever waits for a free slot in a circle.
//
// Layers whose backward cannot be split run all of it in I. Requires a correct schedule; without backwards that of an evaluation.
std::vector<Action> lower(const PipelineSchedule& schedule, const Cut& cut, Mode mode, int rank);

}  // namespace zt::pipe
