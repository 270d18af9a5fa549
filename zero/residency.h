// When sharded parameters are whole: UNSHARD before they are used, RESHARD behind, found from what actions declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zt/program/program.h"

namespace zt::zero {

struct Residency {
  std::string axis;
  int prefetch = 1;                // a unit is gathered while so many units before it are used
  int64_t max_reuse_distance = 0;  // stays whole if at most so many elements of other units are used before its next use
  bool keeps_forward = false;      // stays whole from a micro-batch's forward to its backward
  int64_t max_live = 0;            // elements that are whole at once; units are gathered later for it. 0: no bound
};

// `units`: whose parameters are sharded. Pure. Misuse when `max_live` leaves no room for what one action uses or for what stays.
std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const std::vector<bool>& units,
                                     const Residency& residency);

}  // namespace zt::zero
