// Experts that are copies of any layer.
#pragma once

#include <memory>
#include <string>

#include "zt/model/layer.h"

namespace zt::moe {

struct ExpertsOptions {
  int64_t experts = 0;
  std::string axis = {};  // the mesh axis whose ranks share the experts; empty: each rank has all
  int ranks = 1;          // along the axis; divides experts
};

// Returns a layer that runs `experts` experts, each like `expert`: a layer from rows `h` [n, ...] to rows, in C++ or in Lua. It
// reads `rows` and `group_rows` (exchange.h) and outputs `rows`. For each parameter of the expert it has one of the same name, of
// shape [experts, ...], of which each rank holds its own experts' part; their initial values differ. The expert's own values are
// neither used nor changed, so the model may have the same layer in other places, with parameters of its own there.
//
// An expert must be a function of its rows: it has no batch, draws no random numbers, adds no loss, and does not communicate.
// Throws Misuse, with the reason, otherwise, or if it has no parameters.
std::shared_ptr<Layer> make_experts_of(std::shared_ptr<Layer> expert, const ExpertsOptions& options);

}  // namespace zt::moe
