// Small models with experts, for tests that train them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exchange/dispatcher.h"
#include "routing/router_options.h"
#include "zt/model/model.h"

namespace zt::test {

struct Mixture {
  int64_t experts = 4;
  int64_t top_k = 2;
  int expert_ranks = 1;  // along axis ep
  std::string dispatcher = "all_to_all";
  bool overlaps = false;
  Value::Table router = {};  // further options
  bool has_shared = true;
};

inline const std::vector<std::string> kDispatchers = moe::dispatcher_names();

// Returns embedding, a mixture with a shared expert, a second mixture without one, and a head.
std::shared_ptr<Model> make_mixture(const Mixture& mixture);

}  // namespace zt::test
