// The options of a router.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/options.h"
#include "zt/model/token_options.h"

namespace zt::moe {

class Selection;

// The function of the logits.
enum class Score : uint8_t { softmax, sigmoid };
constexpr auto words_of(Score) {
  return std::array{"softmax", "sigmoid"};
}
// The weights that are divided by their sum.
enum class Normalise : uint8_t { none, selected, kept };
constexpr auto words_of(Normalise) {
  return std::array{"none", "selected", "kept"};
}
enum class Noise : uint8_t { none, jitter, gumbel, gumbel_second, jitter_gumbel_second, noisy_top_k };
constexpr auto words_of(Noise) {
  return std::array{"none", "jitter", "gumbel", "gumbel_second", "jitter_gumbel_second", "noisy_top_k"};
}
// Who chooses: tokens their experts, or experts their tokens.
enum class Choice : uint8_t { token, expert };
constexpr auto words_of(Choice) {
  return std::array{"token", "expert"};
}
// The tokens that share the room of an expert.
enum class RoomOf : uint8_t { sample, micro_batch };
constexpr auto words_of(RoomOf) {
  return std::array{"sample", "micro_batch"};
}
// The tokens that are kept: those with the largest weights, the first ones, or some that are drawn.
enum class KeptTokens : uint8_t { probability, place, random };
constexpr auto words_of(KeptTokens) {
  return std::array{"probability", "place", "random"};
}
// The order in which routes take places, from the first token on: all routes of a token before those of the next; or the first
// choices of all tokens, then their second ones (GShard, DeepSpeed).
enum class Places : uint8_t { by_token, by_choice };
constexpr auto words_of(Places) {
  return std::array{"by_token", "by_choice"};
}
// The tokens over which shares and means of the balancing loss are taken: a sample, the batch of all ranks, a micro-batch.
enum class BalanceOver : uint8_t { sample, batch, micro_batch };
constexpr auto words_of(BalanceOver) {
  return std::array{"sample", "batch", "micro_batch"};
}
// The routes whose shares are balanced: all, or each token's first one (Lepikhin et al. 2020).
enum class BalancedRoutes : uint8_t { all, first };
constexpr auto words_of(BalancedRoutes) {
  return std::array{"all", "first"};
}

// Room for tokens: an expert takes at most max(min, ceil(factor * tokens * top_k / experts)) tokens of a sample, or of a rank's
// micro-batch. The product of tokens / experts and factor * top_k is taken in float32, as DeepSpeed does.
struct CapacityOptions {
  double train = 1, eval = 1;  // factors; evaluation and generation use `eval`
  int64_t min = 4;
  RoomOf per = RoomOf::sample;
  KeptTokens keep = KeptTokens::probability;
  Places places = Places::by_token;  // with KeptTokens::place
  bool pad = false;                  // each expert always gets as many rows, some of them zeros: no counts are exchanged

  // Returns the most tokens per expert, of `tokens` tokens.
  int64_t rows(bool is_training, int64_t tokens, int64_t routes, int64_t experts) const;
};

// Auxiliary losses, each multiplied by a weight; 0: none.
struct RouterLossOptions {
  double balance = 0;  // Fedus et al. 2021: experts * sum over experts of (share of tokens) * (mean probability)
  BalanceOver per = BalanceOver::sample;
  BalancedRoutes of = BalancedRoutes::all;
  double z = 0;  // Zoph et al. 2022: mean over tokens of the squared log-sum-exp of the logits
};

struct RouterOptions {
  int64_t hidden = 0, experts = 0, top_k = 2;
  Score score = Score::softmax;
  bool softmax_after = false;  // weights are the softmax of the selected logits
  Normalise normalise = Normalise::none;
  double scale = 1;  // multiplies the weights
  Noise noise = Noise::none;
  double jitter = 0.01;      // width of Noise::jitter
  bool draw_always = false;  // gumbel noise also in evaluation and generation
  int64_t groups = 1, top_groups = 1;
  Choice choice = Choice::token;  // if experts choose, each takes tokens of a sample, as many as `capacity` allows
  bool has_bias = false;          // a bias for the selection only, which evens out the load
  double bias_rate = 0.001;
  std::shared_ptr<Selection> select = {};  // one of the script's own
  std::string routes = {};                 // a batch field with recorded experts; "balanced": experts in turn
  double std = 0.02;                       // standard deviation of the initial weights
  std::optional<CapacityOptions> capacity;
  RouterLossOptions losses;
  std::vector<std::string> batch_axes;     // mesh axes whose ranks have other tokens, for losses per batch
  std::optional<TokenCutOptions> context;  // how the model's layers cut the tokens of samples
  std::string mask = {};  // the batch field that says which tokens count; "none": all; empty: "loss_mask" or "padding", if given

  bool jitters() const { return noise == Noise::jitter || noise == Noise::jitter_gumbel_second; }
  // Return whether the noise chooses all experts of a token, all but the first, or one of both.
  bool draws_all() const { return noise == Noise::gumbel; }
  bool draws_rest() const { return noise == Noise::gumbel_second || noise == Noise::jitter_gumbel_second; }
  bool has_losses() const { return losses.balance > 0 || losses.z > 0; }
  bool draws() const { return draws_all() || draws_rest(); }
  // Whether the router needs all tokens of a sample on one rank: for experts that choose, or for a capacity.
  bool needs_whole_samples() const { return choice == Choice::expert || capacity; }
  // Whether, when generating, the experts of a token depend on this token only.
  bool treats_tokens_apart() const { return !needs_whole_samples() && !(draws() && draw_always) && !select && routes.empty(); }
  // Throws Misuse if it does. `cut` says how tokens are cut: "over the ranks of axis 'cp'".
  void check_cut_tokens(const std::string& cut) const;
  // Returns what LayerExtras::token_cut returns.
  std::optional<TokenCut> token_cut() const { return context ? token_cut_of(*context, "moe.router.context") : std::nullopt; }
  // Returns which promises about numbers these options give up, for LayerExtras::gives_up.
  std::vector<std::string> given_up() const;
};

// The options of moe.router and of its tables `capacity` and `losses`. Combinations that contradict each other are refused.
const Schema<CapacityOptions>& schema_of(const CapacityOptions&);
const Schema<RouterLossOptions>& schema_of(const RouterLossOptions&);
const Schema<RouterOptions>& schema_of(const RouterOptions&);
inline RouterOptions parse_router(const Value& table) {
  return schema_of(RouterOptions()).parse(table);
}

}  // namespace zt::moe
