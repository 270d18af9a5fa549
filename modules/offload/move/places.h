// Where Trainer:evict puts data between two phases of a run.
#pragma once

#include <memory>

#include "files/swap_memory.h"
#include "zt/base/value.h"
#include "zt/program/rank_program.h"

namespace zt::offload {

struct PlaceOptions : DiskOptions {
  Tier to = Tier::file;
};

// Throws Misuse for options that are wrong. The caller sets `files` and `world`.
PlaceOptions parse_place_options(const Value& options);

// Returns a pass that changes no program, and whose homes are in the tier.
std::shared_ptr<Pass> make_places(PlaceOptions options);

}  // namespace zt::offload
