// Making the buffers of a model's units: allocation by plan, initial values, segments for the optimizer.
#pragma once

#include <functional>
#include <vector>

#include "zt/mesh.h"
#include "zt/model.h"
#include "zt/optimizer.h"
#include "zt/program.h"
#include "zt/unit.h"

namespace zt {

// [numel] zeros in the program's precision, from the communicator that will move them.
using AllocateFn = std::function<at::Tensor(int64_t numel)>;

// What a unit holds at times only lies in buffers that it shares with others; undefined where it has its own.
struct SharedBuffers {
  at::Tensor full, grad;
};

// The unit without buffers: layout and this rank's place on the axis that shards it.
Unit describe_unit(const ModelInfo& model, int index, const UnitPlan& plan, const Coord& coord);

// Allocates parameters, gradient and optimizer state, all zero.
void allocate_unit(Unit& unit, const UnitInfo& info, const std::vector<std::string>& state_names, const AllocateFn& allocate,
                   const SharedBuffers& shared);

// Fills a unit's parameters with their initial values, of sharded ones the owned part, and makes each Param's `values` a view of
// where they are when they are whole.
void initialise_unit(const Model& model, Unit& unit);

// The runs of this rank's shard that the optimizer updates: trainable parameters with a group, ascending.
std::vector<Segment> segments_of(const ModelInfo& model, const Unit& unit, const Optimizer& optimizer);

}  // namespace zt
