// Checks that the ranks of a trainer were given the same: options that their programs do not show, and initial values.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "zt/comm/comm.h"
#include "zt/model/model.h"

namespace zt {

struct TrainerOptions;

// Names and texts, in an order that is the same on all ranks if they are alike.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Returns what all ranks of a trainer must have alike besides their programs: the seed, layers with their options, loss terms,
// shapes of parameters, statistics, the optimizer, the schedule and the trainer's own options.
Facts facts_of(const Model& model, const TrainerOptions& options);
// Returns one fact per parameter about the initial values of the logical tensor: a hash of up to 1,024 of its elements, in blocks
// that are spread evenly, and the first element.
Facts initial_facts_of(const Model& model);

// Throws Misuse on all ranks, with the first fact that differs, the ranks and both texts, unless all ranks have the same facts.
// `control` may be null for one rank. Collective.
void check_alike(const Facts& mine, Communicator* control);

}  // namespace zt
