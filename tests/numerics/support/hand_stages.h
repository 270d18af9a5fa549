// A hand-made pipeline: a pass that gives each rank of an axis a range of positions, and actions that move values between ranks.
#pragma once

#include <memory>
#include <vector>

#include "numerics/support/training.h"
#include "zt/comm/mesh.h"
#include "zt/program/rank_program.h"

namespace zt::test {

// Returns a pass that lets rank s of `axis` run positions [begins[s], begins[s + 1]), one micro-batch after the other. Each
// position must read outputs of the position before it only. `ties`: insert REDUCE_TIE for units that several ranks hold.
std::shared_ptr<Pass> make_hand_stages(std::shared_ptr<Axis> axis, std::vector<int> begins, bool ties = true);

// Makes `config` use such a pass.
inline void split_by_hand(Config& config, const std::vector<int>& begins) {
  config.stage_ranks = static_cast<int>(begins.size()) - 1;
  config.split = [begins](std::shared_ptr<Axis> axis) { return make_hand_stages(std::move(axis), begins); };
}

}  // namespace zt::test
