// The actions that move values and gradients between stages.
#pragma once

#include <utility>
#include <vector>

#include "zt/execute/executor.h"
#include "zt/program/rank_program.h"

namespace zt::pipe {

// Kinds whose target is a position q, for one micro-batch. Attributes: axes, the pipeline's; to or from, the index of the other
// rank along them; depth, of the channel.
struct Transfers {
  KindId send;       // SEND: sends the outputs of q. With free=true they are then dropped
  KindId recv;       // RECV: receives the outputs of q
  KindId send_grad;  // SEND_GRAD: sends the gradient of q's outputs as far as this rank has summed it, and drops it
  KindId recv_grad;  // RECV_GRAD: adds what another rank has summed to the gradient of q's outputs
  KindId free;       // FREE: drops outputs of q that no later action of this rank reads
  static const Transfers& get();
};

std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> transfer_handlers();

}  // namespace zt::pipe
