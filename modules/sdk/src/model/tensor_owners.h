// Which rank updates which tensor, for optimizers that need whole tensors.
#pragma once

#include <vector>

#include "zt/comm/mesh.h"
#include "zt/model/model.h"
#include "zt/model/optimizer.h"
#include "zt/model/unit.h"

namespace zt {

// Returns whether the optimizer updates a parameter of the model as a whole tensor.
bool needs_tensors(const ModelInfo& model, const Optimizer& optimizer);

// Fills in owners, owner_axes and parts of the units of the rank `coord`; does nothing unless needs_tensors. The tensors of all
// units with the same axes are given out together: those with the most work first, each to the rank with the least. Pure, so all
// ranks of a group agree.
void assign_owners(const ModelInfo& model, const Optimizer& optimizer, const Coord& coord, std::vector<Unit>& units);

}  // namespace zt
