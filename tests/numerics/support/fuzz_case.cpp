#include "numerics/support/fuzz_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "layers/layers.h"

namespace zt::test {

namespace {

using Table = Value::Table;

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint32_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int64_t>(values.size()))];
  }

 private:
  std::mt19937 engine_;
};

// A chain of layers, given by names and options. Each rank makes its own model from it.
struct LayerChain {
  struct Use {
    std::string name, kind;
    Table options;
  };
  std::vector<Use> uses;  // a repeated name is another use of the same layer
  int64_t first = 0, last = 0;
  bool tied = false;
  std::string norm;  // the head's norm
};

std::shared_ptr<Layer> make_layer(const LayerChain::Use& use) {
  if (use.kind == "linear") return nn::make_linear(use.options);
  if (use.kind == "mlp") return nn::make_mlp(use.options);
  if (use.kind == "block") return nn::make_block(use.options);
  if (use.kind == "rmsnorm") return nn::make_rmsnorm(use.options);
  return nn::make_dropout(use.options);
}

std::shared_ptr<Model> make_model(const LayerChain& chain) {
  const auto embedding = nn::make_embedding(Table{{"vocab", kVocab}, {"hidden", chain.first}});
  std::vector<NamedLayer> layers{{"embedding", embedding}};
  for (const LayerChain::Use& use : chain.uses) {
    const auto earlier = std::find_if(layers.begin(), layers.end(), [&](const NamedLayer& x) { return x.name == use.name; });
    layers.push_back(earlier == layers.end() ? NamedLayer{use.name, make_layer(use)} : *earlier);
  }
  Table head{{"vocab", kVocab}, {"hidden", chain.last}, {"norm", chain.norm}};
  if (chain.tied) head["tied"] = Object::of(embedding);
  layers.push_back({"head", nn::make_lm_loss(head)});
  return std::make_shared<Model>(std::move(layers), 11);
}

int64_t odd_width(Dice& dice) {
  return 1 + 2 * dice.below(20);
}

// Returns a random next layer for an input of `width` columns, and sets `width` to the columns of its output.
LayerChain::Use random_use(Dice& dice, const std::string& name, int64_t& width) {
  const int64_t kind = dice.below(10);
  if (kind < 3) {
    const int64_t in = std::exchange(width, odd_width(dice));
    return {name, "linear", {{"in", in}, {"out", width}, {"bias", dice.one_in(2)}}};
  }
  if (kind < 5) return {name, "linear", {{"in", width}, {"out", width}, {"bias", dice.one_in(2)}}};
  if (kind < 7) return {name, "mlp", {{"hidden", width}, {"ffn", odd_width(dice)}, {"bias", dice.one_in(2)}}};
  if (kind < 8) return {name, "block", {{"hidden", width}, {"heads", 1}, {"ffn", odd_width(dice)}, {"norm", "rmsnorm"}}};
  if (kind < 9) return {name, "rmsnorm", {{"hidden", width}}};
  return {name, "dropout", {{"p", 0.2}}};
}

LayerChain random_chain(Dice& dice) {
  LayerChain chain;
  chain.first = chain.last = odd_width(dice);
  const int64_t layers = dice.below(7);
  for (int64_t i = 0; i < layers; ++i) {
    const bool repeats = !chain.uses.empty() && dice.one_in(4);
    const int64_t before = chain.last;
    if (repeats) {
      // Repeats a random earlier layer if its input and output have the current number of columns.
      const LayerChain::Use& use = chain.uses[static_cast<size_t>(dice.below(static_cast<int64_t>(chain.uses.size())))];
      const auto columns = [&](const char* key) {
        const auto found = use.options.find(key);
        return found == use.options.end() ? before : *found->second.get_if<int64_t>();
      };
      if (columns("in") == before && columns("out") == before && columns("hidden") == before) {
        chain.uses.push_back(LayerChain::Use(use));
        continue;
      }
    }
    chain.uses.push_back(random_use(dice, fmt::format("layer{}", i), chain.last));
  }
  chain.tied = chain.first == chain.last && dice.one_in(2);
  chain.norm = dice.one_in(3) ? "rmsnorm" : "none";
  return chain;
}

// Elements of the parameters that the largest position uses, and of all parameters.
struct Elements {
  int64_t most = 0, all = 0;
};
Elements elements_of(const ModelInfo& info) {
  Elements elements;
  for (const UnitInfo& unit : info.units) elements.all += unit.numel;
  for (const PositionInfo& position : info.positions) {
    int64_t used = 0;
    for (const int unit : position.units) used += info.units[unit].numel;
    elements.most = std::max(elements.most, used);
  }
  return elements;
}

void choose_mesh(Dice& dice, Config& config) {
  config.ranks = static_cast<int>(1 + dice.below(4));
  switch (config.ranks) {
    case 1:
      config.micro_batches = dice.pick({1, 2, 3, 4});
      break;
    case 2:
      config.micro_batches = dice.pick({1, 2, 3});
      break;
    case 3:
      config.micro_batches = dice.pick({1, 2, 4});
      break;
    default:
      config.micro_batches = dice.pick({1, 3});
      break;
  }
  config.stage = static_cast<int>(dice.below(4));
  if (dice.one_in(4)) config.stage = 3;  // more often, since it has the most options
  config.reduce_every = dice.pick({"step", "micro_batch"});
  // With groups of ranks, sums have another order if each micro-batch is reduced by itself.
  if (config.ranks == 4 && config.stage > 0 && dice.one_in(2)) {
    config.replicas = 2;
    config.reduce_every = "step";
  }
}

// Chooses options of stage 3 that decide when parameters are whole. `config` must not have any of them.
void choose_movement(Dice& dice, Config& config, const Elements& elements) {
  if (dice.one_in(2)) config.prefetch = dice.pick({0, 1, 2, 3, 20});
  if (dice.one_in(3)) config.persist_below = dice.below(600);
  const bool is_bounded = dice.one_in(2);
  if (is_bounded) config.shard["max_live"] = elements.most + dice.below(elements.all - elements.most + 1);
  if (dice.one_in(3)) config.max_reuse_distance = dice.below(2000);
  if (dice.one_in(3)) config.shard["keep"] = is_bounded && dice.one_in(2) ? "max_live" : "forward";
}

void choose_options(Dice& dice, Config& config, const Elements& elements) {
  if (dice.one_in(2)) config.bucket_bytes = dice.pick<int64_t>({0, 100, 1000, 3000, 10000, int64_t{1} << 30});
  if (dice.one_in(3)) config.shard["gather_bucket_bytes"] = dice.pick<int64_t>({0, 1000, 10000});
  if (dice.one_in(3)) config.shard["sub_group_size"] = dice.pick<int64_t>({7, 37, 256, 300, 1000});
  config.node_shared = std::nullopt;
  if (config.stage == 3 && dice.one_in(2)) choose_movement(dice, config, elements);
  else if (dice.one_in(3)) config.node_shared = config.stage > 0 && dice.one_in(2);
  config.recompute_every = dice.pick({0, 0, 1, 2});
  config.clip = dice.pick({0.0, 0.01, 0.5});
  config.by_hand = dice.one_in(4);
  config.is_plain = dice.one_in(4);
}

// Returns a pattern that freezes a unit or a parameter, or an empty string. Something is always left to train.
std::string random_frozen(Dice& dice, const LayerChain& chain, const ModelInfo& info) {
  const auto units = static_cast<int64_t>(info.units.size()) - 1;  // all but the last
  if (units == 0) return "";
  const UnitInfo& unit = info.units[static_cast<size_t>(dice.below(units))];
  if (chain.tied && unit.name == "embedding") return "";
  return dice.one_in(2) ? fmt::format("^{}\\.", unit.name) : fmt::format("^{}$", info.params[unit.params[0]].name);
}

std::string text_of(const Config& config, const LayerChain& chain) {
  std::string text = fmt::format("embedding {}", chain.first);
  for (const auto& use : chain.uses) text += fmt::format(", {} {} {}", use.name, use.kind, Value(use.options).to_json().dump());
  return text + fmt::format(
                    "; head {}{} norm {}; frozen '{}'; {} ranks, {} replicas, {} micro-batches, stage {} {} {}, options {}, "
                    "bucket {}, prefetch {}, persist {}, reuse {}, node_shared {}, recompute {}, clip {}, by hand {}, sgd {}",
                    chain.last, chain.tied ? " tied" : "", chain.norm, config.frozen, config.ranks, config.replicas,
                    config.micro_batches, config.stage, config.reduce_every, config.precision.text(),
                    Value(config.shard).to_json().dump(), config.bucket_bytes, config.prefetch, config.persist_below,
                    config.max_reuse_distance, config.node_shared ? fmt::to_string(*config.node_shared) : "default",
                    config.recompute_every, config.clip, config.by_hand, config.is_plain);
}

}  // namespace

FuzzCase fuzz_case(uint32_t seed) {
  Dice dice(seed);
  const LayerChain chain = random_chain(dice);
  Config config;
  config.steps = static_cast<int>(2 + dice.below(2));
  config.seed = static_cast<int>(seed);
  config.gradient = true;
  config.precision = dice.pick({Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp64});
  // The scale is constant, and small enough that nothing overflows.
  if (config.precision == Precision::fp16) config.loss_scale = LossScaleOptions{.loss_scale = 64};
  config.model = [chain] { return make_model(chain); };
  const auto model = make_model(chain);
  choose_mesh(dice, config);
  choose_options(dice, config, elements_of(model->info()));
  if (dice.one_in(3)) config.frozen = random_frozen(dice, chain, model->info());
  return {config, text_of(config, chain)};
}

}  // namespace zt::test
