// The messages between the ranks of a pipeline: which layers send and need which.
#pragma once

#include <compare>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "flows.h"
#include "rank_layers.h"

namespace zt::pipe {

enum class Direction : uint8_t { forward, backward };
using ChannelKey = std::tuple<int, int, Direction>;  // from rank, to rank

// The content of a message. `stage`: of a gradient, the stage that sends it; of a value 0.
struct Parcel {
  int position, micro_batch, stage;
  auto operator<=>(const Parcel&) const = default;
};

class LayerMessages {
 public:
  LayerMessages(const PipelineSchedule& schedule, const Cut& cut) : schedule_(schedule), flows_(cut.model, cut.partition) {}

  const Flows& flows() const { return flows_; }
  int owner_of(int position) const { return rank_of(flows_.stage_of(position)); }  // the rank that runs it
  bool is_read_by(int rank, int position) const;
  // Returns what the rank sends after a layer.
  std::vector<std::pair<ChannelKey, Parcel>> sent_after(const LayerRun& layer, int rank) const;
  // Returns the messages that must be there before a layer runs.
  std::vector<std::pair<ChannelKey, Parcel>> needed_before(const LayerRun& layer, int rank) const;

 private:
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }

  const PipelineSchedule& schedule_;
  Flows flows_;
};

}  // namespace zt::pipe
