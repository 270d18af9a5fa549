// What a script gives to a pass: kinds of actions (zt.action) and buffers (zt.buffer).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zt/execute/executor.h"
#include "zt/lua/state.h"
#include "zt/program/rank_program.h"

namespace zt::lua {

// A buffer of passes, of which a rank has one for each unit, position or layer that it holds, or one for the run.
struct LuaBuffer {
  std::string name;
  Index of = Index::unit;
  ResourceId type{};
  BufferResidence residence = BufferResidence::whole;
  at::ScalarType dtype = at::kFloat;
  // A list of sizes; "like": one element for each of the unit's flat layout, for trainable units; or a function(owner, info),
  // whose owner is the unit, position or layer in `info`, and which returns a list, or nil where there is no buffer.
  Value shape;

  // Returns those of a rank. `info`: that of the pass.
  std::vector<PassBuffer> of_rank(const RankProgram& program, const Value& info) const;
};

// A kind of action that a script has defined, or a known kind whose handler it replaces.
struct LuaAction {
  KindId kind = 0;
  bool replaces = false;
  std::vector<std::string> axes = {};
  std::vector<std::shared_ptr<LuaBuffer>> buffers = {};
  std::shared_ptr<ActionHandler> handler = {};

  void name_buffers(Action& action) const;
};

void open_actions(Module& module);

}  // namespace zt::lua

namespace zt {
ZT_OBJECT(lua::LuaBuffer)
ZT_OBJECT(lua::LuaAction)
}  // namespace zt
