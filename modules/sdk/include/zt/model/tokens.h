// Samples whose tokens are cut over the ranks of a mesh axis (context parallelism).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "zt/base/box.h"
#include "zt/comm/mesh.h"

namespace zt {

// How a layer wants the tokens of each sample cut. Plain data.
struct TokenCut {
  std::string axis;
  // Whether rank r of n has share_of(total, n, r).count tokens in two chunks, the r-th and the r-th from the end, so that causal
  // attention has as much to do on each. If not, it has share_of(total, n, r). In both cases no rank has more than the first.
  bool is_balanced = true;
  // The fields of a batch with a number per token, [samples, total, ...]. A batch need not have all of them.
  std::vector<std::string> fields = {"tokens", "labels", "positions", "segments", "loss_mask", "padding"};
  bool operator==(const TokenCut&) const = default;
  // Returns "axis = cp, layout = balanced, fields = tokens, labels", for messages.
  std::string text() const;
};

// Where the tokens of a sample are. Plain data.
struct TokenPlaces {
  int64_t total = 0;                               // tokens of a sample; 0: samples have none
  std::vector<std::vector<Share>> of_rank = {{}};  // by index along the axis: the ranges that the rank has, ascending, none empty
  int rank = 0;                                    // this rank's index
  const std::vector<Share>& own() const { return of_rank[static_cast<size_t>(rank)]; }
  int64_t count(int of) const;  // tokens of a sample that the rank with that index has
  int64_t count() const { return count(rank); }
};

// Throws Misuse if there are fewer tokens than chunks.
TokenPlaces places_of(const TokenCut& cut, int64_t total, const Coord& coord);
// Returns where the tokens are if no axis cuts them.
TokenPlaces whole_places(int64_t total);

// Returns the places of some of a rank's tokens, which are counted over its ranges: where the tokens `part` of them are.
std::vector<Share> places_in(const std::vector<Share>& ranges, Share part);

// Returns the elements of dim 1 that lie in the ranges, one range after the other.
at::Tensor tokens_in(const at::Tensor& field, const std::vector<Share>& ranges);

}  // namespace zt
