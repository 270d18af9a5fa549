// A choice of combinations in which each pair of values of two factors occurs.
#pragma once

#include <vector>

namespace zt::test {

// `levels`: by factor, its number of values. Returns a list of combinations, each with one value per factor; another seed gives
// other ones. Pure.
std::vector<std::vector<int>> pairwise(const std::vector<int>& levels, unsigned seed);
// Returns all combinations.
std::vector<std::vector<int>> product(const std::vector<int>& levels);

}  // namespace zt::test
