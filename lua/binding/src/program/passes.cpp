// Passes written in Lua: zt.pass.
#include "program/lua_actions.h"
#include "program/open.h"
#include "program/values.h"
#include "zt/base/options.h"
#include "zt/execute/executor.h"

namespace zt::lua {

namespace {

struct PassOptions {
  std::string name = "of a script";
  std::string phase;
  std::shared_ptr<Mesh> mesh;
  std::optional<std::vector<std::string>> differs_along;
  std::vector<std::shared_ptr<LuaAction>> actions;
  std::vector<std::shared_ptr<LuaBuffer>> buffers;
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
        buffers_(options.buffers),
        apply_(options.apply) {}

  std::string name() const override { return name_; }
  Phase phase() const override { return phase_; }
  std::shared_ptr<Mesh> mesh() const override { return mesh_; }
  std::optional<std::vector<std::string>> differs_along() const override { return differs_along_; }

  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override {
    std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> list;
    for (const auto& action : actions_) {
      if (!action->replaces) list.emplace_back(action->kind, action->handler);
    }
    return list;
  }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> replacements() const override {
    std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> list;
    for (const auto& action : actions_) {
      if (action->replaces) list.emplace_back(action->kind, action->handler);
    }
    return list;
  }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    check_axes(coord.shape);
    return with_context([&] { return "the pass " + name_; },
                        [&] {
                          if (apply_) program = call(std::move(program), model, coord);
                          for (Action& action : program.actions) name_buffers(action);
                          for (const auto& buffer : buffers_) {
                            for (PassBuffer& each : buffer->of_rank(program, to_value(model, coord, differs_along_)))
                              program.buffers.push_back(std::move(each));
                          }
                          return std::move(program);
                        });
  }

 private:
  // Calls the Lua function apply(program, info), which returns the program.
  RankProgram call(RankProgram program, const ModelInfo& model, const Coord& coord) const {
    lua_State* L = apply_->begin();
    push(L, to_value(program));
    push(L, to_value(model, coord, differs_along_));
    apply_->call(2, 1);
    const Value result = check_value(L, -1);
    lua_pop(L, 1);
    if (!result.get_if<Value::Table>())
      misuse("it must return the program (a table with 'actions'), it returned {}", result.type_name());
    return changed_program(std::move(program), result);
  }

  // Names the buffers of a replaced kind in its actions; those of other kinds name theirs when a script makes them.
  void name_buffers(Action& action) const {
    for (const auto& each : actions_) {
      if (each->replaces && each->kind == action.kind) each->name_buffers(action);
    }
  }

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

  std::string name_;
  Phase phase_;
  std::shared_ptr<Mesh> mesh_;
  std::optional<std::vector<std::string>> differs_along_;
  std::vector<std::shared_ptr<LuaAction>> actions_;
  std::vector<std::shared_ptr<LuaBuffer>> buffers_;
  std::shared_ptr<Callable> apply_;
};

const Schema<PassOptions>& pass_schema() {
  static const auto schema =
      Schema<PassOptions>("zt.pass")
          .required("phase", &PassOptions::phase, "structure, compute, residency, reduction, overlap or movement")
          .optional("apply", &PassOptions::apply, "function(program, info) that returns the program")
          .optional("name", &PassOptions::name, "name of the pass, for reports and errors")
          .optional("differs_along", &PassOptions::differs_along,
                    "the mesh axes along which it gives ranks different programs; unset: any")
          .optional("mesh", &PassOptions::mesh, "mesh of the axes that its actions communicate on")
          .optional("actions", &PassOptions::actions, "the kinds of zt.action that it inserts or replaces")
          .optional("buffers", &PassOptions::buffers, "the buffers of zt.buffer that it adds");
  return schema;
}

int make_pass(lua_State* L) {
  push(L, std::shared_ptr<Pass>(std::make_shared<LuaPass>(pass_schema().parse(check_value(L, 1)))));
  return 1;
}

}  // namespace

void open_passes(Module& module) {
  open_actions(module);
  module.function<make_pass>("pass");
}

}  // namespace zt::lua
