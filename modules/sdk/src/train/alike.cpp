#include "alike.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/train/trainer.h"

namespace zt {

namespace {

constexpr const char* kNone = "not given";

void add_given(const std::string& of, const GivenOptions& given, Facts& facts) {
  for (const auto& [name, text] : given) facts.emplace_back(fmt::format("the option '{}' of {}", name, of), text);
}

std::string text_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + "=" + value + "\n";
  return text;
}

Value to_value(const Facts& facts) {
  Value::List list;
  for (const auto& [name, text] : facts) list.emplace_back(Value::List{name, text});
  return list;
}

Facts from_value(const Value& value) {
  Facts facts;
  for (const Value& entry : *value.get_if<Value::List>()) {
    const auto& pair = *entry.get_if<Value::List>();
    facts.emplace_back(*pair[0].get_if<std::string>(), *pair[1].get_if<std::string>());
  }
  return facts;
}

const std::string* find(const Facts& facts, const std::string& name) {
  const auto found = std::ranges::find(facts, name, &Facts::value_type::first);
  return found == facts.end() ? nullptr : &found->second;
}

// Throws Misuse for the first fact of `of_first` or `of_other` that differs.
[[noreturn]] void refuse(const Facts& of_first, const Facts& of_other, size_t other, const std::string& group) {
  const auto refuse_one = [&](const std::string& name, const std::string& first, const std::string& second) {
    misuse(
        "{} is {} on rank 0 and {} on rank {} of '{}': the ranks would train other models than one another; give all ranks the same",
        name, first, second, other, group);
  };
  for (const auto& [name, text] : of_first) {
    const std::string* theirs = find(of_other, name);
    if (!theirs || *theirs != text) refuse_one(name, text, theirs ? *theirs : kNone);
  }
  for (const auto& [name, text] : of_other) {
    if (!find(of_first, name)) refuse_one(name, kNone, text);
  }
  misuse("the ranks 0 and {} of '{}' give the same options in another order: make layers in the same order on all ranks", other,
         group);
}

// Returns a hash of evenly spread blocks of the parameter's logical tensor, and its first element.
std::string sample_of(const Param& param, const ParamInfo& info, uint64_t seed) {
  constexpr int64_t kBlocks = 16, kBlock = 64;
  const int64_t numel = info.logical_numel();
  if (numel == 0) return "empty";
  std::vector<double> values;
  double first = 0;
  const int64_t blocks = std::min(kBlocks, (numel + kBlock - 1) / kBlock);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = blocks == 1 ? 0 : (std::max<int64_t>(numel - kBlock, 0)) / (blocks - 1) * b;
    const int64_t count = std::min(kBlock, numel - begin);
    std::vector<double> block(static_cast<size_t>(count));
    param.init(seed, info.name, begin, block);
    if (b == 0) first = block.front();
    values.insert(values.end(), block.begin(), block.end());
  }
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return fmt::format("{} (hash {:016x})", first, stable_hash({bytes, values.size() * sizeof(double)}));
}

void add_model(const Model& model, Facts& facts) {
  const ModelInfo& info = model.info();
  facts.emplace_back("the model's seed", fmt::format("{}", model.seed()));
  add_given("the model", model.given, facts);
  for (size_t p = 0; p < info.positions.size(); ++p) {
    const PositionInfo& position = info.positions[p];
    const std::string name = fmt::format("layer '{}'", position.name);
    facts.emplace_back(fmt::format("the kind of {}", name), position.kind);
    add_given(name, model.positions()[p].layer->given, facts);
    if (!position.settings.empty()) facts.emplace_back(fmt::format("the settings of {}", name), position.settings);
  }
  for (size_t i = 0; i < info.losses.size(); ++i)
    facts.emplace_back(fmt::format("loss term {}", i + 1),
                       fmt::format("'{}' per {}", info.losses[i].name, name_of(info.losses[i].per)));
  for (const ParamInfo& param : info.params)
    facts.emplace_back(fmt::format("the shape of '{}'", param.name), fmt::format("[{}]", fmt::join(param.logical_shape(), ", ")));
  for (const ModelStat& stat : info.stats)
    facts.emplace_back(fmt::format("the statistic '{}'", stat.name), fmt::format("{} numbers", stat.size));
}

}  // namespace

Facts facts_of(const Model& model, const TrainerOptions& options) {
  Facts facts;
  add_model(model, facts);
  facts.emplace_back("the optimizer", options.optimizer->kind());
  add_given("the optimizer", options.optimizer->given, facts);
  facts.emplace_back("the schedule", options.schedule ? options.schedule->kind() : kNone);
  if (options.schedule) add_given("the schedule", options.schedule->given, facts);
  facts.emplace_back("the trainer's clip", fmt::format("{}", options.clip));
  const auto nonfinite = options.on_nonfinite;
  facts.emplace_back("the trainer's on_nonfinite", !nonfinite ? kNone : *nonfinite == OnNonfinite::skip ? "skip" : "error");
  if (const auto& scale = options.loss_scale) {
    facts.emplace_back("the fp16 loss scale",
                       fmt::format("{} {} {} {} {} {}", scale->loss_scale, scale->initial_scale_power, scale->loss_scale_window,
                                   scale->hysteresis, scale->consecutive_hysteresis, scale->min_loss_scale));
  }
  return facts;
}

Facts initial_facts_of(const Model& model) {
  Facts facts;
  for (size_t i = 0; i < model.params().size(); ++i) {
    const ParamInfo& info = model.info().params[i];
    facts.emplace_back(fmt::format("the first initial value of '{}'", info.name),
                       sample_of(*model.params()[i], info, model.seed()));
  }
  return facts;
}

void check_alike(const Facts& mine, Communicator* control) {
  if (!control) return;
  const at::Tensor own = at::full({1}, static_cast<int64_t>(stable_hash(text_of(mine))), at::kLong);
  const at::Tensor all = at::empty({control->size()}, at::kLong);
  control->all_gather(all, own).synchronize();
  const auto* hashes = all.const_data_ptr<int64_t>();
  const auto* other = std::find_if(hashes, hashes + control->size(), [&](int64_t hash) { return hash != hashes[0]; });
  if (other == hashes + control->size()) return;
  const std::vector<Value> facts = control->all_gather_values(to_value(mine));
  const auto rank = static_cast<size_t>(other - hashes);
  refuse(from_value(facts[0]), from_value(facts[rank]), rank, control->name());
}

}  // namespace zt
