// Routes: the experts of each token. Pure functions on tensors in host memory. Ties go to the lower index.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "zt/base/box.h"

namespace zt::moe {

// How many experts a token gets, of how many of the groups into which experts are divided evenly.
struct TopK {
  int64_t count, groups = 1, top_groups = 1;
};

// Returns the experts of each token, int64 [tokens, count], the largest of the scores [tokens, experts] first. With groups, only
// experts of a token's best groups count; a group's score is the sum of its two best (DeepSeek-V3; with one expert per group, its
// score).
at::Tensor select_top_k(const at::Tensor& scores, const TopK& top_k);

// `scores`: [tokens, experts], of equally many tokens of each of `samples` samples.
// Returns int64 [tokens, experts]: in column e, e if expert e has chosen the token, else -1. Each expert chooses the `room`
// tokens of each sample with the largest scores (Zhou et al.: Mixture-of-experts with expert choice routing. NeurIPS 2022).
at::Tensor select_by_experts(const at::Tensor& scores, int64_t samples, int64_t room);

// Returns int64 [tokens, routes] in which the experts take turns over the tokens of each sample. `places`: the ranges of a
// sample's tokens that are wanted, one after the other.
at::Tensor balanced_routes(int64_t samples, const std::vector<Share>& places, int64_t routes, int64_t experts);

// The room of experts, and who gets it.
struct Room {
  int64_t samples = 1;  // equal parts of the tokens; each expert has room for `rows` tokens of each part
  int64_t rows = 0;
  int64_t experts = 0;
  at::Tensor ranking = {};    // [tokens, routes]: those that rank highest; undefined: the first ones
  bool is_by_choice = false;  // of the first ones: first choices of all tokens come before second ones
  at::Tensor counted = {};    // bool [tokens]: tokens that come before all others; undefined: all
};

// Sets routes of experts without room to -1. Returns the number of routes of counted tokens that were emptied.
int64_t drop_above(at::Tensor& experts, const Room& room);

// Returns float64 [samples, experts]: how many routes of each sample's counted tokens (bool [tokens]; undefined: all) name each
// expert.
at::Tensor load_by_sample(const at::Tensor& experts, int64_t samples, int64_t count, const at::Tensor& counted = {});

}  // namespace zt::moe
