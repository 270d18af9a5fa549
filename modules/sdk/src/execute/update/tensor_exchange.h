// Moves tensors between the ranks that hold parts of them and the ranks that own them, for optimizers that need whole tensors.
#pragma once

#include <vector>

#include "model/build/unit_build.h"
#include "zt/base/box.h"
#include "zt/comm/comm.h"
#include "zt/comm/mesh.h"
#include "zt/model/model.h"
#include "zt/model/unit.h"

namespace zt {

// The moves of one unit. A rank sends the parts in its shard, values and gradients, to the owners of the tensors; an owner puts
// them together in the unit's staging buffer, and sends the new values back. Where ranks hold equal parts, each owner receives
// those of the ranks with its own place among the equal ones, and sends the new values to all.
//
// The staging buffer holds, in the master's dtype: what is sent of the shard, twice; what an owner receives; the owned tensors'
// values, and their gradients.
class TensorExchange {
 public:
  // `unit` has owners (model/tensor_owners.h). Pure.
  TensorExchange(const ModelInfo& model, const Unit& unit, const Coord& coord);

  int64_t staging_elements() const { return gradients_ + owned_; }
  // Both return what is in flight. `comm`: over Unit::owner_axes. `unit` has buffers; it and this object must outlive the Work.
  Work gather(const Unit& unit, Communicator& comm) const;
  // Writes the master's parts of the tensors, and their rounded copies in `shard`.
  Work scatter(const Unit& unit, Communicator& comm) const;
  // Return an owned tensor, whole.
  at::Tensor values(const Unit& unit, int param) const { return owned_tensor(unit, param, values_); }
  at::Tensor gradient(const Unit& unit, int param) const { return owned_tensor(unit, param, gradients_); }

 private:
  // A part of a tensor on the way between this rank and `peer`.
  struct Part {
    int peer;
    OwnedRun run;                 // of the holder
    bool is_source;               // the owner receives it
    std::vector<Box> boxes = {};  // of an owned tensor: the holder's
    size_t tensor = 0;
  };
  struct Owned {
    int param;
    std::vector<int64_t> shape;
    int64_t offset;  // among the owned tensors
  };

  at::Tensor owned_tensor(const Unit& unit, int param, int64_t region) const;
  void unpack(const at::Tensor& staging) const;
  void pack(const at::Tensor& staging) const;

  std::vector<Part> held_;      // in this rank's shard, by owner
  std::vector<Part> received_;  // of owned tensors, by holder
  std::vector<Owned> tensors_;
  std::vector<int64_t> to_owners_, from_holders_, to_holders_, from_owners_;  // elements by rank, for all_to_all
  int64_t sent_ = 0;                                                          // elements of held_
  int64_t owned_ = 0;                                                         // elements of tensors_
  int64_t received_at_ = 0, values_ = 0, gradients_ = 0;                      // where regions of the staging buffer begin
};

// Sends the owners' new values of a unit that each rank holds whole, in place, and rounds the copies.
Work broadcast_tensors(const ModelInfo& model, const Unit& unit, Communicator& comm);

}  // namespace zt
