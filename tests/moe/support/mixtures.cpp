#include "moe/support/mixtures.h"

#include "experts/dense_branch.h"
#include "experts/experts_of.h"
#include "layers/layers.h"
#include "numerics/support/training.h"
#include "routing/router.h"

namespace zt::test {

namespace {

constexpr int64_t kHidden = 16;

std::shared_ptr<Layer> make_mlp() {
  return nn::make_mlp(Value::Table{{"hidden", kHidden}, {"ffn", 20}});
}

void add_mixture(const Mixture& mixture, const std::string& name, bool has_shared, std::vector<NamedLayer>& layers) {
  Value::Table router = mixture.router;
  router["hidden"] = kHidden;
  router["experts"] = mixture.experts;
  router["top_k"] = mixture.top_k;
  router["std"] = 0.5;  // so that experts differ in load
  moe::ExchangeOptions exchange;
  exchange.experts = mixture.experts;
  exchange.hidden = kHidden;
  exchange.axis = "ep";
  exchange.ranks = mixture.expert_ranks;
  exchange.has_shared = has_shared;
  if (const auto options = moe::parse_router(router); options.capacity && options.capacity->pad)
    exchange.padding = options.capacity;
  exchange.dispatcher = mixture.dispatcher;
  exchange.send.async = mixture.overlaps ? Async::yes : Async::no;
  layers.push_back({name + ".router", moe::make_router(moe::parse_router(router))});
  layers.push_back({name + ".dispatch", moe::make_dispatch(exchange)});
  if (has_shared) layers.push_back({name + ".shared", moe::make_shared_expert(make_mlp(), kHidden, true)});
  layers.push_back({name + ".experts", moe::make_experts_of(make_mlp(), {mixture.experts, "ep", mixture.expert_ranks})});
  layers.push_back({name + ".combine", moe::make_combine(exchange)});
}

}  // namespace

std::shared_ptr<Model> make_mixture(const Mixture& mixture) {
  std::vector<NamedLayer> layers{
      {"embedding", nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", kHidden}, {"positions", kSeq}, {"std", 0.5}})}};
  add_mixture(mixture, "first", mixture.has_shared, layers);
  layers.push_back({"norm", nn::make_layernorm(Value::Table{{"hidden", kHidden}})});
  add_mixture(mixture, "second", false, layers);
  layers.push_back({"head", nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", kHidden}})});
  return std::make_shared<Model>(std::move(layers), 7);
}

}  // namespace zt::test
