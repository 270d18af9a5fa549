// When sharded parameters are whole: UNSHARD before they are used, RESHARD behind, found from what actions declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zt/program.h"

namespace zt::zero {

struct Residency {
  std::string axis;
  int prefetch = 1;                // a unit is gathered while so many units before it are used
  int64_t max_reuse_distance = 0;  // stays whole if at most so many elements of other units are used before its next use
};

// `units`: whose parameters are sharded. Pure.
std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const std::vector<bool>& units,
                                     const Residency& residency);

}  // namespace zt::zero
