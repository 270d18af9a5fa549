// The ranks of a mesh as the virtual executor plays them: ranks that behave alike are played once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "zt/comm/mesh.h"
#include "zt/program/rank_program.h"

namespace zt {

// Ranks that behave alike: their programs are equal, and each of their groups has as many ranks of every other kind.
struct PlayedRank {
  int rank = 0;   // the lowest of them
  int count = 1;  // their number
  const RankProgram* program = nullptr;
};

// A communicator between kinds of ranks.
struct PlayedGroup {
  struct Member {
    int played = 0;  // index of the PlayedRank
    int count = 1;   // ranks of this kind in the group
  };
  std::vector<std::string> axes;
  std::vector<Member> members;
  int size() const;                 // number of ranks
  int member_of(int played) const;  // index in `members`; -1 if there is none
  std::string name() const;         // "dp+ep"
};

struct PlayedChannel {
  std::string name;              // of the messages: "forward"
  int sender = 0, receiver = 0;  // indices of PlayedRanks
};

struct PlayedEnd {
  int channel = 0;  // index
  bool is_send = false;
  int depth = 1;
};

struct PlayedRanks {
  MeshShape mesh;
  std::vector<PlayedRank> ranks;  // ascending by their lowest rank
  std::vector<int> played_as;     // by rank: index in `ranks`
  std::vector<PlayedGroup> groups;
  std::vector<PlayedChannel> channels;
  // By played rank, then by action.
  std::vector<std::vector<std::vector<int>>> calls;             // indices of the groups that it communicates in, in order
  std::vector<std::vector<std::optional<PlayedEnd>>> messages;  // the end of a channel that it uses
  std::vector<std::vector<int>> queued;                         // number of the queue on which its work runs; -1: none
  int queues = 0;                                               // of all played ranks
  std::vector<Refusal> errors;  // messages whose peer is not another rank of the group, or whose channel has no depth
};

// Returns a rank that is played as `member` in the group to which `rank` belongs.
int rank_in_group(const PlayedRanks& played, const std::vector<std::string>& axes, int rank, int member);

// `programs`: by rank; ranks with equal programs share one object.
PlayedRanks played_ranks(const ModelInfo& model, const MeshShape& mesh, const std::vector<const RankProgram*>& programs);

}  // namespace zt
