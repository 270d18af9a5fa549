// The layers that send tokens to their experts and sum what comes back. Both are exchange layers (zt/model/layer.h).
//
// `dispatch` reads `h` [..., hidden] and `route_experts` int64 [..., routes] (-1: an empty route). It outputs
//   rows        [rows, hidden] the tokens of this rank's experts, in the order of experts, ranks, tokens and routes
//   group_rows  int64 [own experts] the number of rows of each
//   places      int64 [tokens, routes] and
//   traffic     int64 [2 * experts] for `combine`: what it holds, and how much of it, is the dispatcher's
// `combine` reads `rows` of the same order, `route_weights` [..., routes], `places` and `traffic` of that dispatch, and `shared`
// [..., hidden] if asked for. It outputs `h`: the sum of a token's rows, each times its weight, plus `shared`.
//
// Gradients flow through h, rows, route_weights and shared.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "exchange/traffic.h"
#include "routing/router_options.h"
#include "zt/model/layer.h"

namespace zt::moe {

struct ExchangeOptions {
  int64_t experts = 0;
  int64_t hidden = 0;
  std::string axis = {};  // the mesh axis whose ranks share the experts; empty: each rank has all
  int ranks = 1;          // along the axis; divides experts
  SendOptions send = {};
  bool has_shared = false;  // combine adds `shared`
  // Each expert gets as many rows from each rank as the capacity allows, some of them zeros, so that no counts are exchanged. All
  // ranks must have equally many tokens.
  std::optional<CapacityOptions> padding = {};
  int64_t top_k = 0;  // of the capacity: routes per token if tokens chose; 0: as many as each token has
  // Of plans: the most rows that this rank's experts get. The capacity bounds them; without one, it is assumed that they get
  // `planned_rows` times those of balanced routing.
  std::optional<CapacityOptions> capacity = {};
  double planned_rows = 1;
  std::string dispatcher = "all_to_all";  // one of dispatcher_names()
};

// A model in which a combine reads `places` and `traffic` of anything but one dispatch of the same kind, axis and size is
// refused.
std::shared_ptr<Layer> make_dispatch(const ExchangeOptions& options);
std::shared_ptr<Layer> make_combine(const ExchangeOptions& options);

}  // namespace zt::moe
