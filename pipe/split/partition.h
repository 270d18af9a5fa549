// Cuts a model into stages: consecutive positions that run together.
#pragma once

#include <vector>

#include "zt/base/value.h"
#include "zt/model/model.h"
#include "zt/simulate/costs.h"

namespace zt::pipe {

// A partition: stage s has the positions [begins[s], begins[s + 1]). Stages may be empty.
using Partition = std::vector<int>;

// How to cut. All rules but a list cut between blocks only: positions that continue a block (PositionInfo::continues) stay
// together with it. Where blocks have one position each:
//   "uniform"      stages of equally many positions; the first ones have one more if the number does not divide
//   "parameters"   the largest stage has as few parameters as possible, and then the stages have as equally many as possible;
//                  positions without parameters count nothing
//   "cost"         the slowest stage is as fast as possible, by measured times
//   "type:REGEX"   the same for positions whose name or kind of layer matches: stages with as equally many of them as possible
//   a list         the number of positions of each stage
// Throws Misuse for another value, a list of another length or sum, a regular expression that matches nothing, and "cost" without
// costs, or with costs that were measured for another model.
struct PartitionRule {
  Value rule = "parameters";
  Costs costs = {};
};
Partition make_partition(const PartitionRule& rule, const ModelInfo& model, int stages);

// Returns the partition into `stages` stages of consecutive weights whose largest sum is as small as possible. Of several, it
// returns that whose sums are as equal as possible (the sum of their squares is least), and of these that whose first stages are
// longest. No stage is empty if there are as many positions as stages.
Partition balance(const std::vector<double>& weights, int stages);

}  // namespace zt::pipe
