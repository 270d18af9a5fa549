// pipe.split: the pass.
#include "split/split.h"

#include <tuple>
#include <utility>

#include "lua/open.h"
#include "zt/base/options.h"

namespace zt::pipe {

namespace {

struct SplitTable {
  Value schedule = "one_f_one_b", partition = "parameters", costs;
  std::shared_ptr<Axis> axis;
  int chunks = 0;
};

// Returns a name, or a copy of a schedule, because a script may go on editing its own.
std::pair<std::string, std::shared_ptr<const PipelineSchedule>> to_schedule(const Value& value, const std::string& path) {
  if (const auto* name = value.get_if<std::string>()) return {*name, nullptr};
  std::shared_ptr<PipelineSchedule> schedule;
  convert(value, path, schedule);
  return {"", std::make_shared<const PipelineSchedule>(*schedule)};
}

bool is_text(const Value& value, const std::string& text) {
  const auto* given = value.get_if<std::string>();
  return given && *given == text;
}

// pipe.split{schedule = "zb_v", axis = mesh.pp, partition = "parameters"} -> Pass
int split(lua_State* L) {
  static const auto schema =
      Schema<SplitTable>("pipe.split")
          .required("axis", &SplitTable::axis, "the axis of the pipeline: each of its ranks runs a part of the model")
          .optional("schedule", &SplitTable::schedule, "a name of pipe.schedule, or a schedule; default one_f_one_b")
          .optional("partition", &SplitTable::partition,
                    "how the model is cut into stages: parameters (default), uniform, cost, type:REGEX, or a list")
          .optional("costs", &SplitTable::costs, "for partition = \"cost\": what trainer:costs(batch) returns")
          .only_with("with partition = \"cost\"", [](const SplitTable& o) { return is_text(o.partition, "cost"); })
          .optional<int>("chunks", &SplitTable::chunks, "stages per rank, of a schedule given by name", at_least(1));
  const SplitTable table = schema.parse(lua::check_value(L, 1));
  SplitOptions options{.axis = table.axis, .chunks = table.chunks};
  std::tie(options.name, options.schedule) = to_schedule(table.schedule, "pipe.split.schedule");
  options.partition.rule = table.partition;
  if (const auto* name = table.costs.get_if<std::string>()) options.partition.costs = find_costs(*name);
  else if (!table.costs.is_nil()) options.partition.costs = parse_costs(table.costs);
  lua::push(L, make_split(std::move(options)));
  return 1;
}

// pipe.with_schedule(program, "zb_v") -> Program
int change_schedule(lua_State* L) {
  const auto program = lua::check<Program>(L, 1);
  auto [name, schedule] = to_schedule(lua::check_value(L, 2), "pipe.with_schedule: the schedule");
  lua::push(L, with_schedule(*program, std::move(name), std::move(schedule)));
  return 1;
}

}  // namespace

void open_split(lua::Module& module) {
  module.function<split>("split").function<change_schedule>("with_schedule");
}

}  // namespace zt::pipe
