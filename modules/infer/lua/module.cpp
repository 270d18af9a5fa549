// The binding of zt.infer. The Lua file engine.lua is what scripts use.
#include <ATen/core/Tensor.h>

#include "engine/engine.h"
#include "engine/setup.h"
#include "measure/read_rate.h"
#include "zt/lua/state.h"

namespace zt::infer {

const Schema<CacheOptions>& schema_of(const CacheOptions&) {
  static const auto kSchema =
      Schema<CacheOptions>("infer.engine.cache")
          .optional("memory", &CacheOptions::memory, "bytes for keys and values on each rank; at most 1: a share of what is free",
                    above(0))
          .optional("block", &CacheOptions::block, "tokens of a block", between(1, 1024))
          .optional("dtype", &CacheOptions::dtype, "of keys and values: params, or int8 with a scale per token and head")
          .optional("prefix", &CacheOptions::prefix, "sequences that begin alike share blocks");
  return kSchema;
}

const Schema<SpeculativeOptions>& schema_of(const SpeculativeOptions&) {
  static const auto kSchema =
      Schema<SpeculativeOptions>("infer.engine.speculative")
          .optional("tokens", &SpeculativeOptions::tokens, "most guesses that a step checks for an answer", between(1, 64))
          .optional("match", &SpeculativeOptions::match, "last tokens that must have come before", between(1, 64));
  return kSchema;
}

namespace {

const auto kEngine =
    Schema<EngineOptions>("infer.engine")
        .required("trainer", &EngineOptions::trainer, "holds the parameters")
        .optional("tokenizer", &EngineOptions::tokenizer, "converts between text and tokens")
        .optional("max_context", &EngineOptions::max_context, "most tokens of a prompt and its answer; default: the model's seq",
                  between(0, 1 << 24))
        .optional("token_budget", &EngineOptions::token_budget, "most tokens that a step computes", at_least(1))
        .optional("max_sequences", &EngineOptions::max_sequences, "most answers that a step works on", between(1, 4096))
        .optional("cache", &EngineOptions::cache, "the memory for keys and values")
        .optional("numerics", &EngineOptions::numerics, "invariant: an answer does not depend on the others, or fast")
        .optional("speculative", &EngineOptions::speculative, "guesses tokens by what the text said before")
        .optional("stop_tokens", &EngineOptions::stop_tokens, "tokens of the model that end an answer");

// Returns the mesh of what may be a trainer or a mesh; null for another value and for one rank.
std::shared_ptr<Mesh> mesh_of(const Value& value) {
  const auto* object = value.get_if<Object>();
  const auto trainer = object ? object->as<Trainer>() : nullptr;
  const auto mesh = trainer ? trainer->program().mesh() : object ? object->as<Mesh>() : nullptr;
  return mesh && mesh->coord().shape.world_size() > 1 ? mesh : nullptr;
}

// Returns what is wrong on a rank of the mesh: `mine`, or what another rank passed, or that the ranks have other options.
// Collective over the mesh, if there is one.
std::string wrong_on_a_rank(const std::shared_ptr<Mesh>& mesh, const std::string& mine, const std::string& options) {
  if (!mesh) return mine;
  const auto mistake = find_mistake(*mesh->world()->control, mine, options, "agrees on the options of an engine");
  if (!mistake || !mine.empty()) return mine;
  if (!mistake->complaint.empty()) return fmt::format("rank {}: {}", mistake->rank, mistake->complaint);
  return fmt::format("infer.engine: ranks 0 and {} give different options, {} and {}: give all ranks of a mesh the same",
                     mistake->rank, mistake->first, mistake->other);
}

// infer.agreed(trainer or mesh, what is wrong on this rank, or "", [text of the options]) -> what is wrong on a rank of the mesh,
// or ""
int agreed_over_mesh(lua_State* L) {
  const Value holder = lua::is_absent(L, 1) ? Value() : lua::check_value(L, 1);
  const auto mesh = lua::world(L).dry ? nullptr : mesh_of(holder);
  lua::push(L, wrong_on_a_rank(mesh, lua::check_string(L, 2), lua::is_absent(L, 3) ? "" : lua::check_string(L, 3)));
  return 1;
}

// infer.make{trainer = t, ...} -> Engine
int make(lua_State* L) {
  const Value value = lua::check_value(L, 1);
  std::optional<EngineOptions> options;
  std::string wrong;
  try {
    options = checked_options(kEngine.parse(value));
  } catch (const Error& error) {
    wrong = error.what();
  }
  const World world = lua::world(L);
  const auto* table = value.get_if<Value::Table>();
  const auto trainer = table ? table->find("trainer") : Value::Table::const_iterator();
  if (!world.dry && table && trainer != table->end()) wrong = wrong_on_a_rank(mesh_of(trainer->second), wrong, "");
  if (!wrong.empty()) misuse("{}", wrong);
  lua::push(L, std::make_shared<Engine>(*std::move(options), world));
  return 1;
}

// infer.abilities(trainer) -> {keys = whether an engine can run its model, invariant = whether with numerics = "invariant",
// dtype = name of that of the parameters, trains = whether it has an optimizer}
int abilities(lua_State* L) {
  const auto trainer = lua::check<Trainer>(L, 1);
  lua::push(L, Value(Value::Table{{"keys", cannot_keep_keys(trainer->program()).empty()},
                                  {"invariant", trainer->state().links->device().is_cpu()},
                                  {"dtype", float_type_name(trainer->program().precision().params)},
                                  {"trains", trainer->trains()}}));
  return 1;
}

// infer.draw(logits, {temperature =, top_k =, top_p =}, seed, index) -> token number `index` of an answer, as the engine draws
// it; nil if the logits [vocabulary] are not finite
int draw_one(lua_State* L) {
  static const auto kSchema =
      Schema<SamplingOptions>("infer.draw")
          .optional("temperature", &SamplingOptions::temperature, "divides the logits; 0: the likeliest token")
          .optional("top_k", &SamplingOptions::top_k, "draws from so many likeliest tokens; 0: all")
          .optional("top_p", &SamplingOptions::top_p, "draws from the likeliest tokens with at least this probability; 1: all");
  const at::Tensor logits = lua::check_tensor(L, 1).detach().to(at::kCPU, at::kDouble).contiguous();
  const SamplingOptions options = kSchema.parse(lua::check_value(L, 2));
  const std::span<const double> row(logits.const_data_ptr<double>(), static_cast<size_t>(logits.numel()));
  if (!can_sample(row)) return 0;
  Sampler sampler;
  lua::push(L, sampler.sample(row, options, {}, {}, uniform_of(lua::check_integer(L, 3), 0, lua::check_integer(L, 4))).token);
  return 1;
}

// infer.read_rate(seconds) -> bytes per second at which this rank's threads read memory that is no longer in a cache
int measure_read_rate(lua_State* L) {
  constexpr int64_t kCaches = 8;
  lua::push(L, read_rate(kCaches * last_cache_bytes(), lua::check_number(L, 1)));
  return 1;
}

// engine:describe_step() -> the micro-batches of the widest step, for the plan of a dry run
int describe_step(lua_State* L) {
  Value::List batches;
  for (const Batch& batch : lua::check<Engine>(L, 1)->describe_step()) {
    Value::Table fields;
    for (const auto& [name, values] : batch) fields[name] = values;
    batches.push_back(std::move(fields));
  }
  lua::push(L, Value(std::move(batches)));
  return 1;
}

// engine:check(request, path): an error if it can never be answered
int check_request(lua_State* L) {
  lua::check<Engine>(L, 1)->check(lua::check_value(L, 2), lua::check_string(L, 3));
  return 0;
}

// engine:agreed(what is wrong on this rank, or "", [number of requests]) -> what is wrong on a rank, or ""
int agreed(lua_State* L) {
  const int64_t requests = lua::is_absent(L, 3) ? 0 : lua::check_integer(L, 3);
  lua::push(L, lua::check<Engine>(L, 1)->agreed(lua::check_string(L, 2), requests));
  return 1;
}

// engine:submit(request, [path]) -> its number
int submit(lua_State* L) {
  const std::string path = lua::is_absent(L, 3) ? "" : lua::check_string(L, 3);
  lua::push(L, lua::check<Engine>(L, 1)->submit(lua::check_value(L, 2), path));
  return 1;
}

int abort_request(lua_State* L) {
  lua::push(L, lua::check<Engine>(L, 1)->abort(lua::check_integer(L, 2)));
  return 1;
}

// engine:step() -> {answers = {...}, texts = {{request =, copy =, text =}, ...}}, or nil if no rank had anything to do
int step(lua_State* L) {
  const EngineStep done = lua::check<Engine>(L, 1)->step();
  if (!done.has_run) return 0;
  Value::List answers, texts;
  for (const Answer& answer : done.answers) answers.push_back(to_value(answer));
  for (const TextPiece& piece : done.texts)
    texts.push_back(Value::Table{{"request", piece.request}, {"copy", piece.copy}, {"text", piece.text}});
  lua::push(L, Value(Value::Table{{"answers", std::move(answers)}, {"texts", std::move(texts)}}));
  return 1;
}

int stats(lua_State* L) {
  const EngineStats now = lua::check<Engine>(L, 1)->stats();
  lua::push(L, Value(Value::Table{{"steps", now.steps},
                                  {"prompt_tokens", now.prompt_tokens},
                                  {"new_tokens", now.new_tokens},
                                  {"cached_tokens", now.cached_tokens},
                                  {"put_back", now.put_back},
                                  {"guessed_tokens", now.guessed_tokens},
                                  {"kept_guesses", now.kept_guesses},
                                  {"waiting", now.waiting},
                                  {"running", now.running},
                                  {"blocks", now.blocks},
                                  {"free_blocks", now.free_blocks},
                                  {"prefix_blocks", now.prefix_blocks},
                                  {"cache_bytes", now.cache_bytes},
                                  {"seconds", now.seconds},
                                  {"layer_seconds", now.layer_seconds}}));
  return 1;
}

}  // namespace

}  // namespace zt::infer

ZT_LUA_MODULE(infer) {
  using namespace zt::infer;  // NOLINT: only for the names registered here
  module.from_lua("engine", "zt.infer.engine")
      .function<make>("make")
      .function<abilities>("abilities")
      .function<agreed_over_mesh>("agreed")
      .function<draw_one>("draw")
      .function<measure_read_rate>("read_rate");
  module.type<Engine>()
      .method<describe_step>("describe_step")
      .method<check_request>("check")
      .method<agreed>("agreed")
      .method<submit>("submit")
      .method<abort_request>("abort")
      .method<step>("step")
      .method<stats>("stats")
      .getter<&Engine::has_work>("has_work")
      .getter<&Engine::is_coupled>("is_coupled")
      .getter<&Engine::vocabulary>("vocabulary")
      .getter<[](const Engine& engine) { return engine.options().max_context; }>("max_context");
}
