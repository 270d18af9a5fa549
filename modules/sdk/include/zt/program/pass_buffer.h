// Tensors that a pass keeps on a rank beside those of the model, such as what a compressor of gradients has not sent yet.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "zt/base/words.h"
#include "zt/program/resource.h"

namespace zt {

// Which of the ranks that hold a pass's buffer have the same values in it.
enum class BufferResidence : uint8_t {
  whole,    // all of them; of a unit whose parameters are cut along a mesh axis, those with the same cut
  sharded,  // each rank has the part of the unit that it owns, as of master parameters
  own,      // none: each rank has values of its own, of which another layout needs the sum
  local,    // none, and the values mean nothing on another layout, where they begin with zeros
};
constexpr auto words_of(BufferResidence) {
  return std::array{"whole", "sharded", "own", "local"};
}

// A buffer of one unit, position or layer, or of the run, on one rank. It starts with zeros. Plain data.
struct PassBuffer {
  ResourceId type{};  // of register_pass_buffer (execute/pass_tensors.h)
  int32_t index = 0;  // of the unit, position or layer; 0 for the run
  BufferResidence residence = BufferResidence::whole;
  at::ScalarType dtype = at::kFloat;
  bool is_saved = true;             // in checkpoints
  std::vector<int64_t> shape = {};  // empty if sharded: then it is that of the rank's part of the unit, [chunk]
  bool operator==(const PassBuffer&) const = default;
};

// Returns the elements of the buffer. `chunk`: those of the rank's part of the unit.
int64_t elements_of(const PassBuffer& buffer, int64_t chunk);

// Return what an index of a resource or the target of an action is of: its name ("blocks.1"), empty for Index::none, and a text
// for messages ("unit 'blocks.1'"; "the run").
std::string owner_name(Index of, int index, const ModelInfo& model);
std::string owner_text(Index of, int index, const ModelInfo& model);

}  // namespace zt
