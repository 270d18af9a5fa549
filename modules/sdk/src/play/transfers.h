// Transfers between ranks that are under way, and how fast they advance while they share links.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "play/player.h"

namespace zt {

// The lanes of a play: its communicators and channels. The transfers of a lane run one after the other, in the order in which
// they are added. Those of several lanes run at the same time: of all transfers that need a link of a rank, each gets an equal
// part of what it needs.
class TransferLanes {
 public:
  struct Transfer {
    int lane = 0;
    double ready = 0;    // seconds: from when on it may run
    double seconds = 0;  // that it takes if it shares no link
    LinkUse use = {};
    std::vector<int> ranks = {};  // indices of the played ranks whose links it uses
  };
  using Done = std::function<void(const PlaySpan&)>;

  explicit TransferLanes(size_t lanes) : lanes_(lanes) {}
  // Adds a transfer. `done` is called when its end is known: at once if it shares no links and nothing in its lane is before it.
  // It may not begin before the end of the last one that `finish_next` ended.
  void add(Transfer transfer, Done done);
  // Ends the transfer that ends next. Returns false if there is none.
  bool finish_next();

 private:
  struct Running {
    Transfer transfer;
    Done done;
    double begin = 0;
    double left = 0;  // seconds, of its speed alone
  };
  struct Lane {
    std::deque<Running> waiting;  // the first one runs
    double end = 0;               // of the last one that has ended
  };
  void start_first(Lane& lane);
  void end_first(size_t lane, double end);
  std::vector<double> speeds(const std::vector<size_t>& running) const;

  std::vector<Lane> lanes_;
  std::vector<size_t> busy_;  // lanes with transfers
  double now_ = 0;
};

}  // namespace zt
