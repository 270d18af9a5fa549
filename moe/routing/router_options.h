// The options of a router.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/value.h"

namespace zt::moe {

// Names of options that are words. The first is the default.
inline const std::vector<std::string> kScores{"softmax", "sigmoid"};
inline const std::vector<std::string> kNormalise{"none", "selected", "kept"};
inline const std::vector<std::string> kNoises{"none", "jitter", "gumbel", "gumbel_second", "jitter_gumbel_second", "noisy_top_k"};
inline const std::vector<std::string> kPlaces{"by_token", "by_choice"};
inline const std::vector<std::string> kScopes{"sample", "batch", "micro_batch"};

// Room for tokens: an expert takes at most max(min, ceil(factor * tokens * top_k / experts)) tokens of a sample, or of a rank's
// micro-batch. The product of tokens / experts and factor * top_k is taken in float32, as DeepSpeed does.
struct CapacityOptions {
  double train = 1, eval = 1;  // factors; evaluation and generation use `eval`
  int64_t min = 4;
  std::string per = "sample";        // or "micro_batch"
  std::string keep = "probability";  // the tokens that are kept: those with the largest weights, the first ones ("place"), or
                                     // some that are drawn ("random")
  // Of keep = "place": in which order routes take places, from the first token on: "by_token", all routes of a token before those
  // of the next; or "by_choice", the first choices of all tokens, then their second ones (GShard, DeepSpeed).
  std::string places = "by_token";
  bool pad = false;  // each expert always gets as many rows, some of them zeros: no counts are exchanged

  // Returns the most tokens per expert, of `tokens` tokens.
  int64_t rows(bool is_training, int64_t tokens, int64_t routes, int64_t experts) const;
};

// Auxiliary losses, each multiplied by a weight; 0: none.
struct RouterLossOptions {
  double balance = 0;  // Fedus et al. 2021: experts * sum over experts of (share of tokens) * (mean probability)
  std::string per =
      "sample";            // the tokens over which shares and means are taken: a sample, the batch of all ranks, a micro-batch
  std::string of = "all";  // the routes whose shares are balanced: all, or each token's "first" one (Lepikhin et al. 2020)
  double z = 0;            // Zoph et al. 2022: mean over tokens of the squared log-sum-exp of the logits
};

struct RouterOptions {
  int64_t hidden = 0, experts = 0, top_k = 2;
  std::string score = "softmax";
  bool softmax_after = false;  // weights are the softmax of the selected logits
  std::string normalise = "none";
  double scale = 1;  // multiplies the weights
  std::string noise = "none";
  double jitter = 0.01;      // width of the noise "jitter"
  bool draw_always = false;  // gumbel noise also in evaluation and generation
  int64_t groups = 1, top_groups = 1;
  std::string choice = "token";  // or "expert": each expert chooses tokens of a sample, as many as `capacity` allows
  bool has_bias = false;         // a bias for the selection only, which evens out the load
  double bias_rate = 0.001;
  std::string routes = {};  // a batch field with recorded experts; "balanced": experts in turn
  double std = 0.02;        // standard deviation of the initial weights
  std::optional<CapacityOptions> capacity;
  RouterLossOptions losses;
  std::vector<std::string> batch_axes;  // mesh axes whose ranks have other tokens, for losses per batch
  std::string mask = {};  // the batch field that says which tokens count; "none": all; empty: "loss_mask" or "padding", if given

  bool jitters() const { return noise == "jitter" || noise == "jitter_gumbel_second"; }
  // Return whether the noise chooses all experts of a token, or all but the first.
  bool draws_all() const { return noise == "gumbel"; }
  bool draws_rest() const { return noise == "gumbel_second" || noise == "jitter_gumbel_second"; }
  // Returns all options that decide about routes, weights and losses, for LayerExtras::settings.
  std::string text() const;
  // Returns which promises about numbers these options give up, for Layer::gives_up.
  std::vector<std::string> given_up() const;
};

// For Schema (zt/base/options.h).
void convert(const Value& value, const std::string& path, CapacityOptions& out);
void convert(const Value& value, const std::string& path, RouterLossOptions& out);

// Parses the table of moe.router. Throws Misuse for wrong options and for combinations that contradict each other.
RouterOptions parse_router(const Value& table);

}  // namespace zt::moe
