#include "options_check.h"

#include <algorithm>

#include "plan/plan.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

void check_optimizer(const Optimizer& optimizer, const ModelInfo& model) {
  if (!model.params.empty() && std::ranges::none_of(model.params, &ParamInfo::trainable)) {
    misuse(
        "all parameters of the model are frozen, so the optimizer has nothing to train: freeze fewer, or make the trainer without an "
        "optimizer, which evaluates and infers");
  }
  optimizer.check(model);
}

// Without an optimizer, what it alone would use is refused.
void check_unused(const TrainerOptions& options) {
  const auto refuse = [](const char* option) {
    misuse("a trainer without an optimizer runs no training steps, so {} has no effect: leave it out, or give an optimizer",
           option);
  };
  if (options.schedule) refuse("a schedule");
  if (options.clip > 0) refuse("clip");
  if (options.on_nonfinite) refuse("on_nonfinite");
  if (options.loss_scale) refuse("fp16");
}

void add_options(const std::string& of, const MadeFromOptions& made, Facts& facts) {
  for (const auto& [name, text] : made.option_texts) facts.emplace_back(fmt::format("the option '{}' of {}", name, of), text);
}

// Returns a hash of evenly spread blocks of the parameter's values, and its first element.
std::string sample_of(const Param& param, const ParamInfo& info, uint64_t seed) {
  constexpr int64_t kBlocks = 16, kBlock = 64;
  const int64_t numel = info.numel();
  if (numel == 0) return "empty";
  std::vector<double> values;
  const int64_t blocks = std::min(kBlocks, (numel + kBlock - 1) / kBlock);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = blocks == 1 ? 0 : (std::max<int64_t>(numel - kBlock, 0)) / (blocks - 1) * b;
    const int64_t count = std::min(kBlock, numel - begin);
    values.resize(values.size() + static_cast<size_t>(count));
    param.init(seed, info.name, begin, std::span(values).last(static_cast<size_t>(count)));
  }
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return fmt::format("{} (hash {:016x})", values.front(), stable_hash({bytes, values.size() * sizeof(double)}));
}

void add_model(const Model& model, const ModelInfo& info, Facts& facts) {
  facts.emplace_back("the model's seed", fmt::format("{}", model.seed()));
  add_options("the model", model, facts);
  for (size_t p = 0; p < info.positions.size(); ++p) {
    const PositionInfo& position = info.positions[p];
    const std::string name = fmt::format("layer '{}'", position.name);
    facts.emplace_back(fmt::format("the kind of {}", name), position.kind);
    add_options(name, *model.positions()[p].layer, facts);
  }
  for (size_t i = 0; i < info.losses.size(); ++i)
    facts.emplace_back(fmt::format("loss term {}", i + 1),
                       fmt::format("'{}' per {}", info.losses[i].name, word_of(info.losses[i].per)));
  for (const ParamInfo& param : info.params)
    facts.emplace_back(fmt::format("parameter '{}'", param.name),
                       fmt::format("{} of shape [{}]", param.trainable ? "trainable" : "frozen", fmt::join(param.shape, ", ")));
  for (const ModelStat& stat : info.stats)
    facts.emplace_back(fmt::format("the statistic '{}'", stat.name), fmt::format("{} numbers", stat.size));
}

void add_optimizer(const Optimizer& optimizer, const ModelInfo& model, Facts& facts) {
  add_options("the optimizer", optimizer, facts);
  for (const ParamInfo& param : model.params) {
    if (!param.trainable || optimizer.scope(param) != Scope::tensor) continue;
    for (const StateInfo& state : optimizer.states_of(param)) {
      facts.emplace_back(
          fmt::format("the optimizer's state '{}' of '{}'", state.name, param.name),
          fmt::format("[{}] in {}", fmt::join(state.shape, ", "),
                      state.dtype == at::ScalarType::Undefined ? "the optimizer's precision" : dtype_name(state.dtype)));
    }
  }
}

}  // namespace

void check_options(const Program& program, const TrainerOptions& options) {
  const auto is_packed = [](const UnitInfo& unit) { return unit.is_packed; };
  if (program.precision().params == at::kDouble && std::ranges::any_of(program.info().units, is_packed))
    misuse("packed matrices are multiplied in fp32, bf16 or fp16, and this program computes in fp64: give another precision");
  if (!options.optimizer) return check_unused(options);
  const bool is_fp16 = program.precision().params == at::kHalf;
  if (options.loss_scale && !is_fp16) {
    misuse("a loss scale is for fp16, whose small gradients become zero; this program computes in {}: leave fp16 = {{...}} out",
           float_type_name(program.precision().params));
  }
  const bool is_dynamic = !options.loss_scale || options.loss_scale->is_dynamic();
  if (is_fp16 && is_dynamic && options.on_nonfinite == OnNonfinite::error) {
    misuse("a dynamic loss scale is found by steps that overflow: give on_nonfinite = \"skip\", or a constant fp16.loss_scale");
  }
  check_optimizer(*options.optimizer, program.info());
}

Facts facts_of(const Program& program, const TrainerOptions& options) {
  Facts facts;  // without an optimizer all parameters are frozen, so it stands before the model
  facts.emplace_back("the optimizer", options.optimizer ? options.optimizer->kind() : kNotGiven);
  if (options.optimizer) add_optimizer(*options.optimizer, program.info(), facts);
  add_model(*program.model(), program.info(), facts);
  facts.emplace_back("the schedule", options.schedule ? options.schedule->kind() : kNotGiven);
  if (options.schedule) add_options("the schedule", *options.schedule, facts);
  facts.emplace_back("the program's inputs_need_grad", fmt::format("'{}'", fmt::join(program.input_gradients(), "', '")));
  facts.emplace_back("the trainer's clip", fmt::format("{}", options.clip));
  const auto nonfinite = options.on_nonfinite;
  facts.emplace_back("the trainer's on_nonfinite", !nonfinite ? kNotGiven : *nonfinite == OnNonfinite::skip ? "skip" : "error");
  if (const auto& scale = options.loss_scale) {
    facts.emplace_back("the fp16 loss scale",
                       fmt::format("{} {} {} {} {} {}", scale->loss_scale, scale->initial_scale_power, scale->loss_scale_window,
                                   scale->hysteresis, scale->consecutive_hysteresis, scale->min_loss_scale));
  }
  return facts;
}

Facts initial_facts_of(const Program& program) {
  const Model& model = *program.model();
  Facts facts;
  for (size_t i = 0; i < model.params().size(); ++i) {
    const ParamInfo& info = program.info().params[i];
    facts.emplace_back(fmt::format("the first initial value of '{}'", info.name),
                       sample_of(*model.params()[i], info, model.seed()));
  }
  return facts;
}

void require_optimizer(const Plan& plan, const char* call) {
  if (plan.trains()) return;
  misuse(
      "trainer:{}: this trainer has no optimizer, so it runs no training steps: give zt.trainer the option `optimizer` to train",
      call);
}

void require_adapters(const StepState& state, const char* call) {
  if (!state.adapters)
    misuse("{}: layers compute without their adapters within trainer:with_adapters(false, ...), so there is nothing to train",
           call);
}

TrainerRuns& unless_dry(TrainerRuns* running) {
  if (running) return *running;
  misuse(
      "this trainer is dry, as in a plan: no tensor has values, so only its first step is planned; guard other calls by `if not "
      "zt.world.dry`");
}

}  // namespace zt
