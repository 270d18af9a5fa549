// Making the buffers of a model's units: allocation by plan, initial values, segments for the optimizer.
#pragma once

#include <functional>
#include <vector>

#include "zt/comm/mesh.h"
#include "zt/model/model.h"
#include "zt/model/optimizer.h"
#include "zt/model/precision.h"
#include "zt/model/unit.h"

namespace zt {

// [numel] zeros, from the communicator that will move them.
using AllocateFn = std::function<at::Tensor(int64_t numel, at::ScalarType dtype)>;

// What a unit holds at times only lies in buffers that it shares with others; undefined where it has its own.
struct SharedBuffers {
  at::Tensor full, grad;
};

// The unit without buffers: layout and this rank's place on the axis that shards it.
Unit describe_unit(const ModelInfo& model, int index, const UnitPlan& plan, const Coord& coord);

// Allocates parameters (but for those in a node's shared memory, which are there), gradient and optimizer state, all zero.
void allocate_unit(Unit& unit, const UnitInfo& info, const Precision& precision, const std::vector<std::string>& state_names,
                   const AllocateFn& allocate, const SharedBuffers& shared);

// The part of a parameter that lies in a rank's shard.
struct OwnedRun {
  int64_t first = 0;  // element of the parameter
  int64_t count = 0;
  int64_t place = 0;  // element of the shard; 0 if there is none
};
OwnedRun owned_run(const ParamInfo& param, const Unit& unit);

// The parameter in its unit's buffer `full`, as layers read it: an autograd leaf.
at::Tensor leaf_of(const ParamInfo& param, const at::Tensor& full);

// Fills the owned part of a unit's parameters with their initial values, and makes each Param's `values` a view of where they are
// when they are whole.
void initialise_unit(const Model& model, Unit& unit);

// The runs of this rank's shard that the optimizer updates: trainable parameters with a group, ascending.
std::vector<Segment> segments_of(const ModelInfo& model, const Unit& unit, const Optimizer& optimizer);

}  // namespace zt
