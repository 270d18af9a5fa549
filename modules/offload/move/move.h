// offload.move: keeps data of a step in files, brings them to memory before they are used, and takes them back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/swap_memory.h"
#include "zt/base/value.h"
#include "zt/program/rank_program.h"

namespace zt::offload {

// Where data lie between their uses.
enum class Where : uint8_t { device, host, nvme };
constexpr auto words_of(Where) {
  return std::array{"device", "host", "nvme"};
}

// The memory in which updates work with what travels.
enum class StepOn : uint8_t { device, host };
constexpr auto words_of(StepOn) {
  return std::array{"device", "host"};
}

struct MoveOptions : DiskOptions {
  Where optimizer = Where::device;              // the optimizer state, and master parameters that have memory of their own
  Where gradients = Where::device;              // their sums, from the reduction to the update
  Where parameters = Where::device;             // the shards of parameters that are sharded
  Where activations = Where::device;            // values and graphs, from a forward to its backward
  int activations_stay = 1;                     // the last positions whose activations stay in memory
  int64_t activation_bytes = int64_t{1} << 20;  // of the smallest tensor of activations that leaves
  std::optional<StepOn> step_on;                // by default host; for ranks on the CPU the two are one
  std::optional<double> ratio;                  // share of the bytes that travels
  std::optional<int64_t> memory;                // bytes that may stay in memory
  std::optional<int64_t> staging;  // bytes in memory for each kind of data under way; by default four slices, or three units
  std::optional<int64_t> slice;    // most elements that move together; by default kDefaultSlice

  bool has(Where where) const { return optimizer == where || gradients == where || parameters == where || activations == where; }
};

inline constexpr int64_t kDefaultSlice = int64_t{1} << 20;

// Throws Misuse for options that are wrong or contradict each other. The caller sets `files` and `world`.
MoveOptions parse_move_options(const Value& options);

std::shared_ptr<Pass> make_move(MoveOptions options);

}  // namespace zt::offload
