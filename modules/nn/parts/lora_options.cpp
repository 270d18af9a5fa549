#include <algorithm>

#include "lora.h"
#include "zt/base/error.h"

namespace zt::nn {

namespace {

// The targets that are parts of others.
const std::vector<std::pair<std::string, std::vector<std::string>>> kFused{{"qkv", {"q", "k", "v"}}, {"up", {"gate", "up_proj"}}};

// Far from what is used, so that a scale is finite and not 0.
constexpr double kLeastAlpha = 1e-6, kMostAlpha = 1e6;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

void check_targets(const std::vector<std::string>& targets, const std::string& path, const std::vector<std::string>& known) {
  if (targets.empty())
    misuse("{}.lora.targets is empty, so nothing would be trained: name some of '{}'", path, fmt::join(known, "', '"));
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!contains(known, targets[i]))
      misuse("{}.lora.targets: '{}' is none of '{}'{}", path, targets[i], fmt::join(known, "', '"), suggest(targets[i], known));
    if (std::find(targets.begin(), targets.begin() + static_cast<int64_t>(i), targets[i]) !=
        targets.begin() + static_cast<int64_t>(i))
      misuse("{}.lora.targets names '{}' twice: leave one out", path, targets[i]);
  }
  for (const auto& [whole, parts] : kFused) {
    for (const std::string& part : parts) {
      if (contains(targets, whole) && contains(targets, part))
        misuse("{}.lora.targets: '{}' is a part of '{}', so these rows would have two adapters: leave one out", path, part,
               whole);
    }
  }
}

// Throws Misuse unless each key of `ranks` and `alphas` is one of `names`.
void check_keys(const LoraOptions& options, const std::string& path, const std::vector<std::string>& names) {
  const auto check = [&](const char* option, const std::string& key) {
    if (!contains(names, key)) misuse("{}.lora.{}: no adapter is named '{}'{}", path, option, key, suggest(key, names));
  };
  for (const auto& [key, rank] : options.ranks) {
    check("ranks", key);
    if (rank < 1) misuse("{}.lora.ranks.{} must be at least 1, got {}", path, key, rank);
  }
  for (const auto& [key, alpha] : options.alphas) {
    check("alphas", key);
    const std::string complaint = between(kLeastAlpha, kMostAlpha)(alpha);
    if (!complaint.empty()) misuse("{}.lora.alphas.{} {}", path, key, complaint);
  }
}

std::string name_in(int64_t block, const std::string& target) {
  return fmt::format("blocks.{}.{}", block, target);
}

bool has_block(const LoraOptions& options, int64_t block) {
  return !options.layers || std::ranges::find(*options.layers, block) != options.layers->end();
}

}  // namespace

const Schema<LoraOptions>& schema_of(const LoraOptions& /*options*/) {
  static const auto kSchema =
      Schema<LoraOptions>("lora")
          .optional("rank", &LoraOptions::rank, "rows of A and columns of B", at_least(1))
          .optional("alpha", &LoraOptions::alpha, "number in the scale of B A", between(kLeastAlpha, kMostAlpha))
          .optional("dropout", &LoraOptions::dropout, "dropout probability of the input of A", between(0, 0.999))
          .optional("scale", &LoraOptions::scale, "the factor of B A")
          .optional("init", &LoraOptions::init, "the distribution of A's initial values; B is 0")
          .optional("targets", &LoraOptions::targets, "names of the matrices, or of parts of them, that get adapters")
          .optional("layers", &LoraOptions::layers, "in nn.gpt, the numbers of the blocks that get adapters; default: all")
          .optional("ranks", &LoraOptions::ranks, "other ranks, by target or, in nn.gpt, by \"blocks.N.TARGET\"")
          .optional("alphas", &LoraOptions::alphas, "other alphas, by target or, in nn.gpt, by \"blocks.N.TARGET\"");
  return kSchema;
}

std::vector<std::string> block_targets() {
  std::vector<std::string> targets = kAttentionTargets;
  targets.insert(targets.end(), kMlpTargets.begin(), kMlpTargets.end());
  return targets;
}

bool LoraOptions::has_target(const std::string& name) const {
  return targets && contains(*targets, name);
}

LoraOptions lora_of_layer(LoraOptions options, const std::string& path, const std::vector<std::string>& known,
                          const std::vector<std::string>& otherwise) {
  if (options.layers) misuse("{}.lora.layers is an option of nn.gpt, which has blocks: leave it out", path);
  if (known.size() == 1 && options.targets)
    misuse("{}.lora.targets: the layer has a single matrix, which gets the adapter: leave the option out", path);
  if (!options.targets) options.targets = otherwise;
  check_targets(*options.targets, path, known);
  check_keys(options, path, *options.targets);
  return options;
}

LoraOptions lora_of_model(LoraOptions options, int64_t blocks) {
  std::vector<std::string> known = block_targets();
  known.push_back(kHeadTarget);
  if (!options.targets) options.targets = kUsualTargets;
  check_targets(*options.targets, "nn.gpt", known);
  if (options.layers && options.layers->empty())
    misuse("nn.gpt.lora.layers is empty, so nothing would be trained: name blocks, or leave it out for all");
  for (const int64_t layer : options.layers.value_or(std::vector<int64_t>{})) {
    if (layer < 0 || layer >= blocks)
      misuse("nn.gpt.lora.layers: there is no block {}: the model has {} blocks, numbered from 0", layer, blocks);
    if (std::ranges::count(*options.layers, layer) > 1)
      misuse("nn.gpt.lora.layers names the block {} twice: leave one out", layer);
  }
  if (options.layers && std::ranges::all_of(*options.targets, [](const auto& name) { return name == kHeadTarget; }))
    misuse("nn.gpt.lora.layers has an effect only beside targets in blocks, and 'head' is the only target: leave it out");
  std::vector<std::string> names;
  for (const std::string& target : *options.targets) {
    names.push_back(target);
    for (int64_t block = 0; block < blocks && target != kHeadTarget; ++block) {
      if (has_block(options, block)) names.push_back(name_in(block, target));
    }
  }
  check_keys(options, "nn.gpt", names);
  return options;
}

std::optional<LoraOptions> lora_of_block(const std::optional<LoraOptions>& options, int64_t block) {
  if (!options || !has_block(*options, block)) return {};
  LoraOptions of_block = *options;
  of_block.layers.reset();
  std::erase(*of_block.targets, kHeadTarget);
  if (of_block.targets->empty()) return {};
  for (const std::string& target : *of_block.targets) {
    const std::string name = name_in(block, target);
    if (const auto rank = options->ranks.find(name); rank != options->ranks.end()) of_block.ranks[target] = rank->second;
    if (const auto alpha = options->alphas.find(name); alpha != options->alphas.end()) of_block.alphas[target] = alpha->second;
  }
  return of_block;
}

}  // namespace zt::nn
