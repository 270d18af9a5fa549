// Helpers of the tests of zero.shard.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shard.h"
#include "zt/comm/mesh.h"
#include "zt/program/rank_program.h"

namespace zt::test {

inline std::shared_ptr<Axis> axis_of(const std::string& name, int size) {
  auto axis = std::make_shared<Axis>();
  axis->name = name;
  axis->names = {name};
  axis->size = size;
  axis->link.is_on_device = true;  // so communication overlaps with compute by default
  return axis;
}

// Returns the pass over axis dp. Building programs needs no communicator.
inline std::shared_ptr<Pass> shard(int stage, int64_t bucket_bytes = 0, const std::string& reduce_every = "step", int ranks = 2) {
  return zero::make_shard(
      {.stage = stage, .axis = axis_of("dp", ranks), .bucket_bytes = bucket_bytes, .reduce_every = reduce_every});
}

inline Coord coord_of(int rank, int ranks) {
  return {MeshShape({{"dp", ranks}}, ranks), rank};
}

inline RankProgram sharded(const Pass& pass, const ModelInfo& model, int micro_batches, Mode mode = Mode::train) {
  return pass.apply(base_program(model, mode, micro_batches), model, coord_of(0, 2));
}

// Returns the actions as text without their axes, which are the same in all programs: "REDUCE_GRAD 2 units=[1]".
inline std::vector<std::string> lines_of(const RankProgram& program) {
  std::vector<std::string> lines;
  for (Action action : program.actions) {
    action.attrs.erase("axes");
    lines.push_back(action_text(action));
  }
  return lines;
}

}  // namespace zt::test
