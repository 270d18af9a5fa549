// Passes and action handlers written in Lua: zt.pass, zt.action.
#include "program/lua_handler.h"
#include "program/open.h"
#include "program/values.h"
#include "zt/base/options.h"
#include "zt/execute/executor.h"

namespace zt::lua {

// A kind of action that a script has defined, with its handler.
struct LuaAction {
  KindId kind;
  std::vector<std::string> axes;
  std::shared_ptr<ActionHandler> handler;
};

}  // namespace zt::lua

namespace zt {
ZT_OBJECT(lua::LuaAction)
ZT_DEFINE_OBJECT(lua::LuaAction, "Action")
}  // namespace zt

namespace zt::lua {

namespace {

struct PassOptions {
  std::string name = "of a script";
  std::string phase;
  std::shared_ptr<Mesh> mesh;
  std::optional<std::vector<std::string>> differs_along;
  std::vector<std::shared_ptr<LuaAction>> actions;
  std::shared_ptr<Callable> apply;
};

class LuaPass : public Pass {
 public:
  explicit LuaPass(const PassOptions& options)
      : name_(options.name),
        phase_(parse_phase(options.phase)),
        mesh_(options.mesh),
        differs_along_(options.differs_along),
        actions_(options.actions),
        apply_(options.apply) {}

  std::string name() const override { return name_; }
  Phase phase() const override { return phase_; }
  std::shared_ptr<Mesh> mesh() const override { return mesh_; }
  std::optional<std::vector<std::string>> differs_along() const override { return differs_along_; }

  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override {
    std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> list;
    for (const auto& action : actions_) list.emplace_back(action->kind, action->handler);
    return list;
  }

  // Calls the Lua function apply({actions, mode, micro_batches}, info). It returns the program and may change its actions only.
  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    check_axes(coord.shape);
    const std::string& mode = word_of(program.mode);
    lua_State* L = apply_->begin();
    push(L,
         Value(Value::Table{{"actions", to_value(program.actions)}, {"mode", mode}, {"micro_batches", program.micro_batches}}));
    push(L, to_value(model, coord, differs_along_));
    apply_->call(2, 1);
    const Value result = check_value(L, -1);
    lua_pop(L, 1);
    const auto* table = result.get_if<Value::Table>();
    if (!table || !table->contains("actions")) {
      misuse("the pass {} must return the program (a table with 'actions'), it returned {}", name_, result.type_name());
    }
    check_fields(*table, mode, program.micro_batches);
    program.actions = to_actions(table->at("actions"), name_ + ": program.actions");
    return program;
  }

 private:
  // Without a mesh there is one rank, and no axis to differ along.
  void check_axes(const MeshShape& mesh) const {
    std::vector<std::string> names;
    for (const AxisSize& axis : mesh.axes()) names.push_back(axis.name);
    if (names.empty() || !differs_along_) return;
    for (const std::string& axis : *differs_along_) {
      if (std::ranges::find(names, axis) == names.end())
        misuse("the pass {} has differs_along = '{}', which is no axis of the mesh{}", name_, axis, suggest(axis, names));
    }
  }

  void check_fields(const Value::Table& table, const std::string& mode, int64_t micro_batches) const {
    for (const auto& [key, value] : table) {
      if (key == "actions") continue;
      const auto* text = value.get_if<std::string>();
      const auto* number = value.get_if<int64_t>();
      const bool is_same_mode = key == "mode" && text && *text == mode;
      const bool is_same_number = key == "micro_batches" && number && *number == micro_batches;
      if (is_same_mode || is_same_number) continue;
      misuse("the pass {} sets program.{}, which would have no effect: a pass changes program.actions only{}", name_, key,
             key == "micro_batches" ? "; give zt.program(model, {micro_batches = n})" : "");
    }
  }

  std::string name_;
  Phase phase_;
  std::shared_ptr<Mesh> mesh_;
  std::optional<std::vector<std::string>> differs_along_;
  std::vector<std::shared_ptr<LuaAction>> actions_;
  std::shared_ptr<Callable> apply_;
};

struct ActionOptions {
  std::string name;
  std::vector<std::string> reads, writes, axes;
  std::string target = "unit";
  std::shared_ptr<Callable> run;
};

const Schema<ActionOptions>& action_schema() {
  static const auto schema =
      Schema<ActionOptions>("zt.action")
          .required("name", &ActionOptions::name, "upper-case name of the kind")
          .required("run", &ActionOptions::run, "function(action, unit, state)")
          .optional("target", &ActionOptions::target, "what an action of this kind refers to: 'unit' or 'none'",
                    Check<std::string>(one_of({"unit", "none"})))
          .optional("reads", &ActionOptions::reads, "names of resources, such as param, master, grad, state, scalars")
          .optional("writes", &ActionOptions::writes, "names of resources")
          .optional("axes", &ActionOptions::axes, "names of the mesh axes it communicates on");
  return schema;
}

// An action of a script has a unit or nothing as its target, so it touches data of units, or those without an index.
ResourceId parse_resource(const std::string& name) {
  const ResourceId id = resource_id(name);
  if (const ResourceType& type = type_of(id); type.index != Index::unit && type.index != Index::none)
    misuse("zt.action: '{}' is {}: an action of a script can touch resources of units, and scalars", name, type.doc);
  return id;
}

std::vector<ResourceId> parse_resources(const std::vector<std::string>& names) {
  std::vector<ResourceId> types;
  for (const auto& name : names) types.push_back(parse_resource(name));
  return types;
}

int make_action(lua_State* L) {
  const ActionOptions options = action_schema().parse(check_value(L, 1));
  const auto reads = parse_resources(options.reads), writes = parse_resources(options.writes);
  for (const auto* types : {&reads, &writes}) {
    for (const ResourceId type : *types) {
      if (options.target == "none" && type_of(type).index == Index::unit)
        misuse("zt.action{{name = \"{}\"}}: '{}' is data of a unit, and target = \"none\" has no unit: leave the target out",
               options.name, type_of(type).name);
    }
  }
  Kind kind;
  kind.name = options.name;
  kind.target = options.target == "unit" ? Target::unit : Target::none;
  kind.doc = "defined by a script";
  kind.resources = [reads, writes](const Action& action, const ModelInfo&) {
    Resources resources;
    const auto place = [&](ResourceId type) {
      return Resource{type, type_of(type).index == Index::none ? 0 : std::max(action.target, 0)};
    };
    for (const ResourceId type : reads) resources.reads.push_back(place(type));
    for (const ResourceId type : writes) resources.writes.push_back(place(type));
    return resources;
  };
  const KindId id = register_kind(std::move(kind));
  const bool writes_master = std::find(writes.begin(), writes.end(), resource::master) != writes.end();
  push(L, std::make_shared<LuaAction>(
              LuaAction{id, options.axes, std::make_shared<LuaHandler>(options.name, options.run, writes_master)}));
  return 1;
}

// Calling an Action makes a list entry: average(unit_index) -> {kind = "AVERAGE", target = unit_index, axes = {...}}
int call_action(lua_State* L) {
  const auto lua_action = check<LuaAction>(L, 1);
  Action action{.kind = lua_action->kind};
  if (!is_absent(L, 2)) action.target = static_cast<int32_t>(check_integer(L, 2));
  if (!lua_action->axes.empty()) action.set_axes(lua_action->axes);
  push(L, to_value(action));
  return 1;
}

const Schema<PassOptions>& pass_schema() {
  static const auto schema = Schema<PassOptions>("zt.pass")
                                 .required("phase", &PassOptions::phase, "structure, compute, residency, reduction or overlap")
                                 .required("apply", &PassOptions::apply, "function(program, info) that returns the program")
                                 .optional("name", &PassOptions::name, "name of the pass, for reports and errors")
                                 .optional("differs_along", &PassOptions::differs_along,
                                           "the mesh axes along which it gives ranks different programs; unset: any")
                                 .optional("mesh", &PassOptions::mesh, "mesh of the axes that its actions communicate on")
                                 .optional("actions", &PassOptions::actions, "the zt.action kinds that it inserts");
  return schema;
}

int make_pass(lua_State* L) {
  push(L, std::shared_ptr<Pass>(std::make_shared<LuaPass>(pass_schema().parse(check_value(L, 1)))));
  return 1;
}

}  // namespace

void open_passes(Module& module) {
  module.function<make_action>("action").function<make_pass>("pass");
  module.type<LuaAction>().metamethod<call_action>("__call");
}

}  // namespace zt::lua
