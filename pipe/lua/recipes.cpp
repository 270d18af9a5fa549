// pipe.schedule: schedules by name, from text, empty ones, and list scheduling.
#include "schedule/recipes.h"

#include "lua/open.h"
#include "schedule/search.h"
#include "schedule/text.h"
#include "zt/base/options.h"

namespace zt::pipe {

namespace {

int push(lua_State* L, PipelineSchedule schedule) {
  lua::push(L, std::make_shared<PipelineSchedule>(std::move(schedule)));
  return 1;
}

struct RecipeOptions {
  int ranks = 0, micro_batches = 0, chunks = 0;
};

// The options that all schedules have.
template <class Options>
Schema<Options> schema_of(const std::string& name) {
  return Schema<Options>("pipe.schedule." + name)
      .template required<int>("ranks", &Options::ranks, "number of ranks of the pipeline", at_least(1))
      .template required<int>("micro_batches", &Options::micro_batches, "number of micro-batches", at_least(1))
      .renamed("stages", "ranks");
}

int make_named(lua_State* L) {
  const Recipe& recipe = recipes()[static_cast<size_t>(lua::upvalue_number(L))];
  const auto schema =
      schema_of<RecipeOptions>(recipe.name)
          .optional<int>("chunks", &RecipeOptions::chunks, "stages per rank; by default those of the schedule", at_least(1));
  const RecipeOptions options = schema.parse(lua::check_value(L, 1));
  return push(L, make_schedule(recipe.name, {options.ranks, options.chunks, options.micro_batches}));
}

// pipe.schedule.names() -> a list
int names(lua_State* L) {
  Value::List names;
  for (const Recipe& recipe : recipes()) names.emplace_back(recipe.name);
  lua::push(L, Value(std::move(names)));
  return 1;
}

struct EmptyOptions {
  int ranks = 0, micro_batches = 0;
  std::optional<int> chunks;
  std::optional<std::string> placement;
  std::optional<std::vector<int>> rank_of_stage;
};

// pipe.schedule.empty{ranks = 2, micro_batches = 4} -> a schedule without steps, to be filled with schedule:rank(r):insert(step)
int make_empty(lua_State* L) {
  static const auto schema =
      schema_of<EmptyOptions>("empty")
          .optional("chunks", &EmptyOptions::chunks, "stages per rank; by default 1, and 2 for the placement v", at_least(1))
          .optional("placement", &EmptyOptions::placement, "loop: stage s on rank s % ranks; v: two chunks, there and back",
                    one_of({"loop", "v"}))
          .only_with("without rank_of_stage", [](const EmptyOptions& o) { return !o.rank_of_stage; })
          .optional("rank_of_stage", &EmptyOptions::rank_of_stage, "instead of placement: the rank of each stage, as a list");
  const EmptyOptions options = schema.parse(lua::check_value(L, 1));
  if (options.rank_of_stage) {
    if (options.chunks || options.placement)
      misuse("pipe.schedule.empty: rank_of_stage places every stage, so {} has no effect: give one of them",
             options.chunks ? "chunks" : "placement");
    return push(L, empty_schedule(*options.rank_of_stage, options.ranks, options.micro_batches));
  }
  const StagePlacement placement = options.placement == "v" ? StagePlacement::v : StagePlacement::loop;
  const int chunks = options.chunks.value_or(placement == StagePlacement::v ? 2 : 1);
  return push(L, empty_schedule(placement, options.ranks, chunks, options.micro_batches));
}

int make_from_text(lua_State* L) {
  return push(L, from_text(lua::check_string(L, 1)));
}
int make_from_csv(lua_State* L) {
  return push(L, from_csv(lua::check_string(L, 1)));
}

struct SearchTable {
  int ranks = 0, micro_batches = 0, chunks = 2;
  std::string placement = "v";
  Value::Table costs;
  Value memory, activations;
};

// Returns `count` numbers from a number or a list of as many.
std::vector<double> numbers(const Value& value, const std::string& path, size_t count) {
  std::vector<double> list;
  if (value.get_if<Value::List>()) convert(value, path, list);
  else convert(value, path, list.emplace_back());
  if (list.size() == 1) list.resize(count, list[0]);
  if (list.size() != count) misuse("{} has {} entries: give one number, or a list of {}", path, list.size(), count);
  for (const double number : list) {
    if (!(number >= 0)) misuse("{}: times and sizes are not negative, got {}", path, number);
  }
  return list;
}

Times parse_times(const Value::Table& costs, size_t stages) {
  static const std::vector<std::string> known{"F", "I", "W", "transfer"};
  Times times;
  times.stages.resize(stages);
  for (const auto& [key, value] : costs) {
    const std::string path = "pipe.schedule.search.costs." + key;
    if (std::ranges::find(known, key) == known.end()) misuse("{} is unknown{}", path, suggest(key, known));
  }
  const auto set = [&](const char* key, double StageTimes::*member) {
    const auto found = costs.find(key);
    if (found == costs.end())
      misuse("pipe.schedule.search.costs: the time of {} is missing: give one number, or one per stage", key);
    const auto list = numbers(found->second, std::string("pipe.schedule.search.costs.") + key, stages);
    for (size_t s = 0; s < stages; ++s) times.stages[s].*member = list[s];
  };
  set("F", &StageTimes::forward);
  set("I", &StageTimes::input_grad);
  set("W", &StageTimes::weight_grad);
  const auto transfer = costs.find("transfer");
  if (transfer != costs.end()) times.transfer = numbers(transfer->second, "pipe.schedule.search.costs.transfer", 1)[0];
  return times;
}

// pipe.schedule.search{ranks = 4, micro_batches = 8, costs = {F = 1, I = 1.2, W = 0.8}, memory = 6}
int make_search(lua_State* L) {
  static const auto schema =
      schema_of<SearchTable>("search")
          .optional<int>("chunks", &SearchTable::chunks, "stages per rank", at_least(1))
          .optional("placement", &SearchTable::placement, "v or loop", one_of({"loop", "v"}))
          .optional("costs", &SearchTable::costs,
                    "times F, I and W of a stage, as numbers or lists, and transfer; by default equal")
          .optional("memory", &SearchTable::memory, "most that a rank's activations may take, or a list by rank; by default any")
          .optional("activations", &SearchTable::activations,
                    "what a micro-batch holds in a stage, or a list by stage; by default 1")
          .only_with("with memory", [](const SearchTable& o) { return !o.memory.is_nil(); });
  const SearchTable table = schema.parse(lua::check_value(L, 1));
  SearchOptions options{.placement = table.placement == "v" ? StagePlacement::v : StagePlacement::loop,
                        .ranks = table.ranks,
                        .chunks = table.chunks,
                        .micro_batches = table.micro_batches};
  empty_schedule(options.placement, options.ranks, options.chunks, options.micro_batches);  // checks the numbers
  const size_t stages = static_cast<size_t>(table.ranks) * static_cast<size_t>(table.chunks);
  if (!table.costs.empty()) options.times = parse_times(table.costs, stages);
  if (!table.memory.is_nil())
    options.memory = numbers(table.memory, "pipe.schedule.search.memory", static_cast<size_t>(table.ranks));
  if (!table.activations.is_nil()) options.activations = numbers(table.activations, "pipe.schedule.search.activations", stages);
  return push(L, search(options));
}

}  // namespace

void open_recipes(lua::Module& module) {
  for (size_t i = 0; i < recipes().size(); ++i) module.function<make_named>(recipes()[i].name.c_str(), static_cast<int>(i));
  module.function<names>("names")
      .function<make_empty>("empty")
      .function<make_from_text>("from_text")
      .function<make_from_csv>("from_csv")
      .function<make_search>("search");
}

}  // namespace zt::pipe
