// Whole tensors from what the ranks hold of them, and back.
#pragma once

#include "store.h"

namespace zt::whole_tensors {

// Return the whole tensor of a parameter. Collective over the axes that cut it, `join` also over those that shard its unit.
at::Tensor join_boxes(const Store& store, int param, const at::Tensor& unit);  // from the flat buffers of the ranks' units
at::Tensor join(const Store& store, int param, const at::Tensor& chunk);       // from their owned parts
// Returns the values of this rank's boxes of the parameter, one after the other.
at::Tensor held_values(const Store& store, int param, const at::Tensor& values);
// Returns this rank's values of a parameter as its unit holds them: packed, if the parameter is. `values`: of the whole
// parameter, or the bytes, uint8, of the whole packed matrix.
at::Tensor held_in_format(const Store& store, int param, const at::Tensor& values);

}  // namespace zt::whole_tensors
