#include "routing/router_options.h"

#include <algorithm>
#include <cmath>

#include "routing/selection.h"

namespace zt::moe {

const Schema<CapacityOptions>& schema_of(const CapacityOptions&) {
  static const auto kSchema =
      Schema<CapacityOptions>("moe.router.capacity")
          .optional("train", &CapacityOptions::train, "factor in training: 1 is room for balanced routing", above(0))
          .optional("eval", &CapacityOptions::eval, "factor in evaluation and generation", above(0))
          .optional("min", &CapacityOptions::min, "room for at least so many tokens", at_least(1))
          .optional("per", &CapacityOptions::per, "tokens that share the room")
          .optional("keep", &CapacityOptions::keep, "tokens that are kept")
          .optional("places", &CapacityOptions::places, "order in which routes take places")
          .only_with("with keep = \"place\"", [](const CapacityOptions& o) { return o.keep == KeptTokens::place; })
          .optional("pad", &CapacityOptions::pad, "fill the room with zeros, so that no counts are exchanged");
  return kSchema;
}

const Schema<RouterLossOptions>& schema_of(const RouterLossOptions&) {
  const auto balances = [](const RouterLossOptions& o) { return o.balance > 0; };
  static const auto kSchema = Schema<RouterLossOptions>("moe.router.losses")
                                  .optional("balance", &RouterLossOptions::balance, "weight of the balancing loss", at_least(0))
                                  .optional("per", &RouterLossOptions::per, "tokens over which the load is balanced")
                                  .only_with("with balance above 0", balances)
                                  .optional("of", &RouterLossOptions::of, "routes whose shares are balanced")
                                  .only_with("with balance above 0", balances)
                                  .optional("z", &RouterLossOptions::z, "weight of the z-loss", at_least(0));
  return kSchema;
}

namespace {

// `routes` and `select` take the place of the router's choice.
bool chooses(const RouterOptions& o) {
  return o.routes.empty() && !o.select;
}

void check_expert_choice(const RouterOptions& o) {
  if (!o.capacity) misuse("moe.router: experts that choose need `capacity`, the number of tokens that each takes");
  if (o.has_bias || o.groups > 1 || !chooses(o) || o.softmax_after || o.draws())
    misuse(
        "moe.router: bias, groups, routes, select, softmax_after and gumbel noise are for tokens that choose (choice = \"token\")");
  if (o.normalise == Normalise::kept)
    misuse("moe.router: experts that choose drop no route: give normalise = \"selected\" instead of \"kept\"");
  if (o.capacity->per != RoomOf::sample || o.capacity->keep != KeptTokens::probability)
    misuse("moe.router: experts choose the most probable tokens of one sample: leave out capacity.per and capacity.keep");
}

// The weight of a token's only expert must depend on the logits.
void check_trains(const RouterOptions& o) {
  const bool is_constant = o.choice == Choice::token && o.top_k == 1 && (o.softmax_after || o.normalise != Normalise::none);
  if (!is_constant || o.experts == 1 || o.losses.balance > 0 || o.losses.z > 0) return;
  misuse(
      "moe.router: with top_k = 1, {} makes every weight 1, so the task's loss gives the router no gradient and it would never "
      "learn: leave that out, give top_k = 2, or add a loss of the router (losses = {{balance = 0.01}})",
      o.softmax_after ? "softmax_after" : fmt::format("normalise = \"{}\"", word_of(o.normalise)));
}

void check_router(const RouterOptions& o) {
  if (o.top_k > o.experts)
    misuse("moe.router: {} experts per token, but there are only {}: give top_k of at most {}", o.top_k, o.experts, o.experts);
  if (o.experts % o.groups != 0) misuse("moe.router: {} experts cannot be divided into {} groups evenly", o.experts, o.groups);
  if (o.groups > 1 && o.top_groups == o.groups)
    misuse("moe.router: a token may use all {} groups, so they have no effect: give top_groups below groups, or leave both out",
           o.groups);
  if (o.top_groups > o.groups) misuse("moe.router: {} groups per token, but there are only {}", o.top_groups, o.groups);
  if (o.top_k > o.top_groups * (o.experts / o.groups))
    misuse("moe.router: {} groups of {} experts cannot give {} experts per token", o.top_groups, o.experts / o.groups, o.top_k);
  if (o.softmax_after && o.score != Score::softmax) misuse("moe.router: softmax_after needs score = \"softmax\"");
  if (o.has_bias && o.draws())
    misuse("moe.router: noise = \"{}\" chooses experts by logits, and bias by scores: use one of them", word_of(o.noise));
  if (o.choice == Choice::expert) check_expert_choice(o);
  if (o.losses.of == BalancedRoutes::first && o.choice == Choice::expert)
    misuse("moe.router: losses.of = \"first\" is for tokens that choose: leave it out if experts choose");
  if (o.losses.per == BalanceOver::batch && o.losses.balance > 0 && o.batch_axes.empty())
    misuse("moe.router: a balancing loss per batch needs batch_axes, the mesh axes whose ranks have other tokens");
  if (const auto cut = o.token_cut()) {
    o.check_cut_tokens(fmt::format("over the ranks of axis '{}'", cut->axis));
    if (std::ranges::find(o.batch_axes, cut->axis) != o.batch_axes.end())
      misuse("moe.router: batch_axes has '{}', the axis of `context`, over which sums go anyway: leave it out of batch_axes",
             cut->axis);
  }
  check_trains(o);
}

}  // namespace

const Schema<RouterOptions>& schema_of(const RouterOptions&) {
  static const auto kSchema =
      Schema<RouterOptions>("moe.router")
          .required("hidden", &RouterOptions::hidden, "columns of the input", at_least(1))
          .required("experts", &RouterOptions::experts, "number of experts", at_least(1))
          .optional("top_k", &RouterOptions::top_k, "experts per token", at_least(1))
          .optional("score", &RouterOptions::score, "function of the logits")
          .optional("softmax_after", &RouterOptions::softmax_after, "weights are the softmax of the selected logits")
          .optional("normalise", &RouterOptions::normalise, "divide weights by the sum of those selected, or kept")
          .only_with("without softmax_after, whose weights have the sum 1",
                     [](const RouterOptions& o) { return !o.softmax_after || o.normalise != Normalise::selected; })
          .optional("scale", &RouterOptions::scale, "multiplies the weights", above(0))
          .optional("noise", &RouterOptions::noise, "noise in training")
          .only_with("where experts are left to draw: without routes and select, and for gumbel_second with top_k above 1",
                     [](const RouterOptions& o) { return !o.draws() || (chooses(o) && (o.draws_all() || o.top_k > 1)); })
          .optional("jitter", &RouterOptions::jitter, "half the width of the factor of noise = \"jitter\"", between(0, 1))
          .only_with("with noise = \"jitter\"", &RouterOptions::jitters)
          .optional("draw_always", &RouterOptions::draw_always, "gumbel noise also in evaluation and generation")
          .only_with("with noise = \"gumbel\" or \"gumbel_second\"", &RouterOptions::draws)
          .optional("groups", &RouterOptions::groups, "groups of experts", at_least(1))
          .only_with("without routes and select", chooses)
          .optional("top_groups", &RouterOptions::top_groups, "groups that a token may use", at_least(1))
          .only_with("without routes and select", chooses)
          .optional("choice", &RouterOptions::choice, "who chooses")
          .optional("bias", &RouterOptions::has_bias, "even out the load by a bias for the selection")
          .only_with("without routes and select", [](const RouterOptions& o) { return chooses(o) || !o.has_bias; })
          .optional("bias_rate", &RouterOptions::bias_rate, "change of the bias per step", above(0))
          .only_with("with bias = true", [](const RouterOptions& o) { return o.has_bias; })
          .optional("routes", &RouterOptions::routes, "\"balanced\", or a batch field with recorded experts")
          .only_with("without select", [](const RouterOptions& o) { return !o.select; })
          .optional("select", &RouterOptions::select, "function(scores) that returns the experts of each token")
          .optional("std", &RouterOptions::std, "standard deviation of the initial weights", at_least(0))
          .optional("capacity", &RouterOptions::capacity, "room per expert; default: no token is dropped")
          .optional("losses", &RouterOptions::losses, "auxiliary losses")
          .optional("batch_axes", &RouterOptions::batch_axes, "for losses per batch: mesh axes with other tokens")
          .only_with("with losses = {balance = weight, per = \"batch\"}",
                     [](const RouterOptions& o) { return o.losses.balance > 0 && o.losses.per == BalanceOver::batch; })
          .optional("context", &RouterOptions::context,
                    "{axis =, layout =, fields =}: how the tokens of samples are cut over ranks")
          .optional("mask", &RouterOptions::mask, "batch field that says which tokens count; \"none\": all do")
          .checked(check_router);
  return kSchema;
}

int64_t CapacityOptions::rows(bool is_training, int64_t tokens, int64_t routes, int64_t experts) const {
  const auto of_expert = static_cast<float>(static_cast<double>(tokens) / static_cast<double>(experts));
  const auto factor = static_cast<float>((is_training ? train : eval) * static_cast<double>(routes));
  const auto room = static_cast<int64_t>(std::ceil(of_expert * factor));
  return std::min(tokens, std::max(min, room));
}

void RouterOptions::check_cut_tokens(const std::string& cut) const {
  if (!needs_whole_samples()) return;
  misuse("moe.router: {} needs all tokens of a sample on one rank, and they are cut {}: leave one of the two out",
         choice == Choice::expert ? "choice = \"expert\"" : "capacity", cut);
}

std::vector<std::string> RouterOptions::given_up() const {
  std::vector<std::string> sentences;
  if (losses.balance > 0 && losses.per == BalanceOver::micro_batch)
    sentences.emplace_back(
        "losses.per = \"micro_batch\" balances each rank's micro-batch by itself: the loss and its gradients depend on the numbers of "
        "ranks and micro-batches");
  if (losses.balance > 0 && losses.per == BalanceOver::batch)
    sentences.emplace_back(
        "losses.per = \"batch\" balances a micro-batch of all ranks: with several micro-batches, the loss and its gradients "
        "depend on the numbers of ranks and micro-batches");
  if (capacity && capacity->per == RoomOf::micro_batch)
    sentences.emplace_back(
        "capacity.per = \"micro_batch\" drops tokens of each rank's micro-batch: which ones depends on the numbers of ranks and "
        "micro-batches");
  return sentences;
}

}  // namespace zt::moe
