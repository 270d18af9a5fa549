// What a rank owns of a unit, wherever it lies. For use between steps: no action may be in flight.
#pragma once

#include <memory>
#include <string>

#include "zt/base/stateful.h"
#include "zt/execute/executor.h"

namespace zt::owned_data {

// `tensor` is "master", "shard", "grad_shard", or "state.NAME" for an optimizer state that is flat over the unit. Elements are
// counted in the owned part.
//
// Copies the elements [first, first + to.numel()) to `to`, or `from` to the elements from `first` on.
void read(const StepState& state, const Unit& unit, const std::string& tensor, int64_t first, at::Tensor to);
void write(const StepState& state, const Unit& unit, const std::string& tensor, int64_t first, const at::Tensor& from);
// Returns all elements, in one dimension: the tensor itself where it is in memory as a whole, else a copy.
at::Tensor all(const StepState& state, const Unit& unit, const std::string& tensor);

// Returns a source of the elements [wanted.first, wanted.end()) as they are now. Those in memory are copied; those that lie
// elsewhere are kept there until they are released (Homes::keep).
std::shared_ptr<PieceSource> keep(const StepState& state, const Unit& unit, const std::string& tensor, const Slice& wanted);

// Writes the master parameters to the unit's shard, rounded. Does nothing where they are the same memory.
void round_master(const StepState& state, const Unit& unit);

}  // namespace zt::owned_data
