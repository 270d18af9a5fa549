// Makes the buffers of a model's units: allocation, initial values, segments for the optimizer.
#pragma once

#include <functional>
#include <vector>

#include "zt/comm/mesh.h"
#include "zt/model/model.h"
#include "zt/model/optimizer.h"
#include "zt/model/precision.h"
#include "zt/model/unit.h"

namespace zt {

// Lists of axes, each of which means the communicator over them.
using AxesList = std::vector<std::vector<std::string>>;

// Returns [numel] zeros in memory that the communicators over `movers` move without a copy if they can.
using AllocateFn = std::function<at::Tensor(const AxesList& movers, int64_t numel, at::ScalarType dtype)>;

// The slots of a unit in buffers that units share, for its full parameters and its gradient. Undefined means that the unit has a
// buffer of its own.
struct SharedBuffers {
  at::Tensor full, grad;
};

// Returns the unit without buffers: its layout, and this rank's index along the axes that shard it.
Unit describe_unit(const ModelInfo& model, int index, const UnitPlan& plan, const Coord& coord);

// Returns the names of the tensors of optimizer state, with master parameters that have memory of their own, as in a DataSlice.
std::vector<std::string> names_of_state(const Precision& precision, const std::vector<std::string>& states);

// Allocates parameters, gradient and optimizer state, all zero; of data that lie elsewhere, the slices that stay. If parameters
// are node_shared, `full` must be allocated already.
void allocate_unit(Unit& unit, const UnitInfo& info, const Precision& precision, const std::vector<std::string>& state_names,
                   const AllocateFn& allocate, const SharedBuffers& shared);

// The part of a parameter that is in a rank's shard.
struct OwnedRun {
  int64_t first = 0;  // its first element, counted in the rank's boxes of the parameter
  int64_t count = 0;  // elements; 0: no part
  int64_t place = 0;  // its first element, counted in the shard; 0 if count is 0
};
OwnedRun owned_run(const ParamInfo& param, const Unit& unit, const Coord& coord);

// Returns the autograd leaves that layers read, by ModelInfo::params: views of the parameters in their units' buffers `full`, of
// packed ones packed_tensor of the type `params`; undefined for units that are not held.
std::vector<at::Tensor> leaves_of(const ModelInfo& model, const std::vector<Unit>& units, const Coord& coord,
                                  at::ScalarType params);

// Fills `to`, a slice of the owned part of a unit's parameters, with their initial values, rounded to the master's dtype `exact`
// and then to that of `to`. Leaves the places of no parameter, and of packed ones, as they are. `info`: of the model's layers.
void initialise_slice(const Model& model, const ModelInfo& info, const Unit& unit, const Coord& coord, const Slice& slice,
                      const at::Tensor& to, at::ScalarType exact);

// Returns the segments of this rank's shard that the optimizer updates: trainable parameters with a group, ascending.
std::vector<Segment> segments_of(const ModelInfo& model, const Unit& unit, const Optimizer& optimizer, const Coord& coord);

}  // namespace zt
