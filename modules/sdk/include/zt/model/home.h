// Where data lie that are not always in the device's memory, and the slices in which they move. Plain data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace zt {

// A memory of a rank.
enum class Tier : uint8_t {
  device,  // that of the rank's device
  host,    // that of the host, where the device has another one
  file,    // files
};
constexpr auto words_of(Tier) {
  return std::array{"device", "host", "file"};
}

// Bytes in the memories besides the device's.
struct TierBytes {
  int64_t host = 0, files = 0;

  int64_t& in(Tier tier) { return tier == Tier::host ? host : files; }
  void rise_to(const TierBytes& other) { host = std::max(host, other.host), files = std::max(files, other.files); }
  // Adds them to what reports show, by the names of the memories: "host" and "files". Leaves out what is 0.
  void add_to(std::map<std::string, int64_t>& lines) const {
    if (host > 0) lines["host"] += host;
    if (files > 0) lines["files"] += files;
  }
};

// Some elements of the part of a unit that a rank owns.
struct Slice {
  int64_t first = 0, count = 0;

  int64_t end() const { return first + count; }
};

// Slices begin at multiples of so many elements: of every type these fill whole pages, as direct I/O requires.
inline constexpr int64_t kSliceAlign = 4096;

// Returns the least multiple of kSliceAlign that holds `elements`.
constexpr int64_t in_whole_blocks(int64_t elements) {
  return (elements + kSliceAlign - 1) / kSliceAlign * kSliceAlign;
}

// Returns slice number `part` of `parts` equal slices of `elements`. The last slices may be shorter, and empty.
Slice slice_of(int64_t elements, int64_t part, int64_t parts);
// Returns the least number of slices of at most `longest` elements each. Throws Misuse unless `longest` is a positive multiple of
// kSliceAlign.
int64_t slices_of_at_most(int64_t elements, int64_t longest);

// The kinds of a unit's data that may lie elsewhere: of each the part that a rank owns.
enum class UnitData : uint8_t {
  state,   // the optimizer state, with master parameters that have memory of their own
  grads,   // the sum of the gradient: Unit::grad_shard
  params,  // the parameters in the type of layers: Unit::shard
};
constexpr auto words_of(UnitData) {
  return std::array{"state", "grads", "params"};
}
inline constexpr std::array kAllData{UnitData::state, UnitData::grads, UnitData::params};

// The kinds of data of a position and micro-batch that may lie elsewhere between a forward and its backward.
enum class StepData : uint8_t {
  value,  // the outputs of the position
  graph,  // what its forward has kept for its backward, but for its inputs, outputs and parameters
};
constexpr auto words_of(StepData) {
  return std::array{"value", "graph"};
}

// Where one kind of a unit's data lies between its uses. If the tier is not the device's memory, FETCH brings slices of them from
// it and EVICT takes them back. The first `stays` slices are always in the device's memory.
struct Home {
  Tier tier = Tier::device;
  int stays = 0;
  bool operator==(const Home&) const = default;

  bool is_elsewhere() const { return tier != Tier::device; }
};

}  // namespace zt
