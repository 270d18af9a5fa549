// Checks that ranks were given the same.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "zt/comm/comm.h"

namespace zt {

// Names and texts, in an order that is the same on all ranks if they are alike.
using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kNotGiven = "not given";  // the text of an option that a script has not set

// Throws Misuse on all ranks, with the first fact that differs, the ranks and both texts, unless all ranks have the same facts.
// `why`: what would be wrong, "the ranks would ...". `control` may be null for one rank. Collective.
void check_alike(const Facts& mine, Communicator* control, const std::string& why);

}  // namespace zt
