// zt.trainer and its methods.
#include <atomic>

#include "arguments.h"
#include "hooks.h"
#include "program/batches.h"
#include "program/open.h"
#include "program/schedules.h"
#include "program/values.h"
#include "protected_call.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/process/log.h"
#include "zt/train/trainer.h"

namespace zt::lua {

namespace {

struct TrainerArguments {
  std::shared_ptr<Optimizer> optimizer;
  Value schedule;
  double clip = 0;
  std::optional<std::string> on_nonfinite;
  std::optional<Value> fp16;
  bool separate = false;
};

const Schema<TrainerArguments>& trainer_schema() {
  static const auto schema =
      Schema<TrainerArguments>("zt.trainer")
          .optional(
              "optimizer", &TrainerArguments::optimizer,
              "an optimizer such as optim.adamw{...}; without one the trainer evaluates and infers, and holds parameters only")
          .optional("schedule", &TrainerArguments::schedule,
                    "a schedule such as optim.warmup_cosine{...}, or function(updates) -> rate")
          .optional("clip", &TrainerArguments::clip, "maximum L2 norm of the gradient; 0: no clipping",
                    Check<double>(at_least(0)))
          .optional("on_nonfinite", &TrainerArguments::on_nonfinite,
                    "what to do if loss or gradient is not finite: error, or in fp16 skip",
                    Check<std::string>(one_of({"error", "skip"})))
          .optional("fp16", &TrainerArguments::fp16, "options of the fp16 loss scale, with DeepSpeed's names")
          .optional("separate", &TrainerArguments::separate,
                    "true: ranks train models of their own on purpose, or do the same work, so nothing warns of it");
  return schema;
}

// Warns, once per process, if ranks train separate models because a pass was forgotten, or do the same work.
void warn_of_idle_ranks(const World& here, const Trainer& trainer) {
  std::string text;
  if (here.size > 1 && !trainer.program().mesh()) {
    text = fmt::format(
        "{} ranks train {} separate models, because no pass of the program joins them: apply zero.shard{{axis = mesh.dp}} or "
        "pipe.split, or give zt.trainer the option separate = true",
        here.size, here.size);
  } else if (const auto idle = trainer.idle_axes(); !idle.empty()) {
    text = fmt::format(
        "nothing in the program uses the mesh axis '{}', so its ranks do the same work or train separate models: apply a pass with "
        "this axis, make the mesh without it, or give zt.trainer the option separate = true",
        fmt::join(idle, "', '"));
  }
  static std::atomic<bool> is_said = false;
  if (!text.empty() && here.rank == 0 && !is_said.exchange(true)) log(LogLevel::warn, here, text);
}

int make_trainer(lua_State* L) {
  const auto program = check<Program>(L, 1);
  const TrainerArguments given = trainer_schema().parse(check_value(L, 2));
  TrainerOptions options;
  options.optimizer = given.optimizer;
  options.schedule = parse_schedule(given.schedule, trainer_schema().name() + ".schedule");
  options.clip = given.clip;
  if (given.on_nonfinite) options.on_nonfinite = given.on_nonfinite == "skip" ? OnNonfinite::skip : OnNonfinite::error;
  if (given.fp16) options.loss_scale = parse_loss_scale(*given.fp16, trainer_schema().name() + ".fp16");
  options.dry = world(L).dry;
  const auto trainer = Trainer::make(program, options);
  if (!given.separate) warn_of_idle_ranks(world(L), *trainer);
  push(L, trainer);
  return 1;
}

// Ends `ztoolkit run --dry` and `ztoolkit plan` in place of the first step: the Lua library prints the report or plan and exits
// (zt/plan.lua). The step's batch consists of `parts` parts like the one at stack index 2.
int end_dry_run(lua_State* L, int64_t parts) {
  lua_settop(L, 2);
  push_hook(L, Hook::dry_step, "a dry run");
  lua_insert(L, 1);
  push(L, parts);
  lua_call(L, 3, 0);
  return 0;
}

constexpr const char* kNoBatch =
    "trainer:step needs this rank's batch; after trainer:forward and trainer:backward by hand call trainer:finish_step()";

// trainer:input_gradients(batch) -> {image = tensor}
int input_gradients(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  const StepBatch batch =
      is_absent(L, 2) ? StepBatch::wrong("trainer:input_gradients needs this rank's batch") : check_step_batch(L, 2);
  Value::Table gradients;
  for (auto& [name, values] : trainer->input_gradients(batch)) gradients[name] = std::move(values);
  push(L, Value(std::move(gradients)));
  return 1;
}

struct StepCall {
  std::shared_ptr<Callable> update_if;
};
const auto kStep = Schema<StepCall>("trainer:step")
                       .optional("update_if", &StepCall::update_if,
                                 "function(is_finite) that is called before the updates, and returns whether to make them");

// Calls the function of a script.
UpdateIf update_if_of(const std::shared_ptr<Callable>& function) {
  if (!function) return {};
  return [function](bool is_finite) {
    lua_State* L = function->begin();
    const int top = lua_gettop(L) - 1;
    lua_pushboolean(L, is_finite ? 1 : 0);
    function->call(1, 1);
    const bool is_boolean = lua_isboolean(L, -1);
    const bool is_wanted = lua_toboolean(L, -1) != 0;
    lua_settop(L, top);
    if (!is_boolean) misuse("trainer:step.update_if must return true or false: whether to update the parameters");
    return is_wanted;
  };
}

// trainer:step(batch), trainer:step(batch, {update_if = function(is_finite) ... end})
int step(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  const StepBatch batch = is_absent(L, 2) ? StepBatch::wrong(kNoBatch) : check_step_batch(L, 2);
  const StepCall call = kStep.parse(is_absent(L, 3) ? Value() : check_value(L, 3));
  if (world(L).dry && trainer->trains()) return end_dry_run(L, 1);
  push(L, result_value(trainer->step(batch, update_if_of(call.update_if))));
  return 1;
}

struct FinishOptions {
  double divisor = 0;
};

// trainer:finish_step() or trainer:finish_step{divisor = n}, after forward and backward of all micro-batches
int finish_step(lua_State* L) {
  static const auto schema = Schema<FinishOptions>("trainer:finish_step")
                                 .optional("divisor", &FinishOptions::divisor,
                                           "divisor of the sum of the gradients; by default micro-batches x data-parallel size",
                                           Check<double>(above(0)));
  const auto trainer = check<Trainer>(L, 1);
  push(L, result_value(trainer->finish_step(schema.parse(check_value(L, 2)).divisor)));
  return 1;
}

// trainer:evaluate(batch). For a trainer without an optimizer it is the step that a dry run plans, as is trainer:infer.
int evaluate(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  const StepBatch batch = check_step_batch(L, 2);
  if (world(L).dry && !trainer->trains()) return end_dry_run(L, 1);
  push(L, result_value(trainer->evaluate(batch)));
  return 1;
}

Value outputs_value(const std::map<std::string, at::Tensor>& outputs) {
  Value::Table table;
  for (const auto& [name, tensor] : outputs) table[name] = tensor;
  return table;
}

// trainer:infer(batch, [function(outputs) -> plain value])
int infer(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  StepBatch batch = check_step_batch(L, 2);
  if (world(L).dry && !trainer->trains()) {
    trainer->describe_inference();
    return end_dry_run(L, 1);
  }
  const bool has_function = lua_isfunction(L, 3);
  if (!has_function && !is_absent(L, 3)) {  // all ranks learn of it
    batch =
        StepBatch::wrong(fmt::format("trainer:infer takes a batch and a function of the outputs, got a {}", luaL_typename(L, 3)));
  }
  if (!has_function) {
    push(L, outputs_value(trainer->infer(batch)));
    return 1;
  }
  push(L, trainer->infer(batch, [L](const std::map<std::string, at::Tensor>& outputs) {
    lua_pushvalue(L, 3);
    push(L, outputs_value(outputs));
    if (const auto failure = protected_call(L, 1, 1)) failure->raise();
    const Value value = check_value(L, -1);
    lua_pop(L, 1);
    return value;
  }));
  return 1;
}

int forward(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  if (world(L).dry && trainer->trains()) return end_dry_run(L, trainer->program().micro_batches());
  push(L, trainer->forward(check_batch(L, 2)));
  return 1;
}

int memory(lua_State* L) {
  Value::Table lines;
  for (const MemoryLine& line : check<Trainer>(L, 1)->memory()) {
    Value::Table entry;
    if (line.predicted >= 0) entry["predicted"] = line.predicted;
    if (line.measured >= 0) entry["measured"] = line.measured;
    lines[line.kind] = entry;
  }
  push(L, Value(lines));
  return 1;
}

// trainer:plan(batch) -> a list with one entry per kind of rank: {ranks = "0-7", count, memory, actions, sent,
// assumptions}; memory and sent in bytes
int plan(lua_State* L) {
  push(L, check<Trainer>(L, 1)->plan(check_step_batch(L, 2)));
  return 1;
}

// trainer:predict_activations(batch) -> bytes. The report and trainer:memory() show them, too.
int predict_activations(lua_State* L) {
  push(L, check<Trainer>(L, 1)->predict_activations(check_step_batch(L, 2)));
  return 1;
}

int trace_events(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  trainer->drain();
  push(L, trainer->trace().events(world(L).rank));
  return 1;
}

// trainer:set_lr(rate): fixes the learning rate; without a rate, the schedule applies again.
int set_lr(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  if (is_absent(L, 2)) trainer->set_lr({});
  else trainer->set_lr(check_number(L, 2));
  return 0;
}

// Returns the names of data in argument 2, a list.
std::set<TrainerData> check_data(lua_State* L, const char* call) {
  const Value names = check_value(L, 2);
  const auto* table = names.get_if<Value::Table>();
  const auto* list = names.get_if<Value::List>();
  if (!list && !(table && table->empty()))  // an empty table is no list
    misuse("{} takes a list of data, such as {{\"optimizer\", \"gradients\"}}", call);
  std::set<TrainerData> what;
  for (const Value& name : list ? *list : Value::List()) {
    const auto* word = name.get_if<std::string>();
    if (!word) misuse("{} takes a list of names, such as {{\"optimizer\", \"gradients\"}}", call);
    what.insert(parse_word<TrainerData>(*word, std::string(call) + ": unknown data"));
  }
  return what;
}

// trainer:evict({"optimizer", "gradients"}, {to = "nvme", folder = "/nvme0"})
int evict(lua_State* L) {
  check<Trainer>(L, 1)->phases().evict([L] {
    TrainerPhases::Request request{.what = check_data(L, "trainer:evict"), .places = {}};
    const Value given = is_absent(L, 3) ? Value(Value::Table()) : check_value(L, 3);
    push_hook(L, Hook::moving_pass, "trainer:evict()");
    push(L, given);
    if (const auto failure = protected_call(L, 1, 1)) failure->raise();
    request.places = check<Pass>(L, -1);
    const auto* options = given.get_if<Value::Table>();
    request.to = options && *options->at("to").get_if<std::string>() == "host" ? Tier::host : Tier::file;
    return request;
  });
  return 0;
}

// trainer:fetch([{"parameters"}])
int fetch(lua_State* L) {
  check<Trainer>(L, 1)->phases().fetch([L] {
    if (is_absent(L, 2)) return std::set<TrainerData>();
    std::set<TrainerData> what = check_data(L, "trainer:fetch");
    if (what.empty()) misuse("trainer:fetch: the list names nothing: name some data, or leave the list out to bring all back");
    return what;
  });
  return 0;
}

// trainer:with_adapters(false, function() ... end): calls the function, in which layers compute without their adapters, and
// returns what it returns.
int with_adapters(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  const bool wanted = check_boolean(L, 2);
  if (!lua_isfunction(L, 3)) misuse("trainer:with_adapters takes true or false, and a function, got {}", luaL_typename(L, 3));
  lua_settop(L, 3);
  const bool before = trainer->phases().use_adapters(wanted);
  const auto failure = protected_call(L, 0, LUA_MULTRET);
  trainer->phases().restore_adapters(before);
  if (failure) failure->raise();
  return lua_gettop(L) - 2;
}

int program_text(lua_State* L) {
  const auto trainer = check<Trainer>(L, 1);
  const Mode mode = trainer->trains() ? Mode::train : Mode::eval;
  push(L, trainer->program().build(mode, trainer->program().coord()).text());
  return 1;
}

}  // namespace

void open_trainers(Module& module) {
  module.function<make_trainer>("trainer").function<make_lua_optimizer>("optimizer");
  module.type<Trainer>()
      .method<step>("step")
      .method<input_gradients>("input_gradients")
      .method<evaluate>("evaluate")
      .method<infer>("infer")
      .method<forward>("forward")
      .method<&Trainer::backward>("backward")
      .method<finish_step>("finish_step")
      .method<&Trainer::report>("report")
      .method<memory>("memory")
      .method<evict>("evict")
      .method<fetch>("fetch")
      .method<with_adapters>("with_adapters")
      .method<plan>("plan")
      .method<predict_activations>("predict_activations")
      .method<[](Trainer& trainer) { trainer.trace().start(); }>("trace_start")
      .method<trace_events>("trace_events")
      .method<set_lr>("set_lr")
      .getter<&Trainer::loss_scale>("loss_scale")
      .method<program_text>("text")
      .getter<&Trainer::global_step>("global_step")
      .getter<[](const Trainer& trainer) { return trainer.program().mesh(); }>("mesh")
      .getter<[](const Trainer& trainer) { return trainer.program().model(); }>("model")
      .getter<&Trainer::shared_program>("program");
  module.type<Optimizer>();
  module.type<Schedule>();
}

}  // namespace zt::lua
