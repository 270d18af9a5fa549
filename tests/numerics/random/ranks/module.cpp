// A Lua module for tests: runs a script on several ranks, as threads of this process, as often as a test wants.
#include <ATen/ATen.h>

#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tally.h"
#include "zt/base/error.h"
#include "zt/lua/runtime.h"
#include "zt/lua/state.h"
#include "zt/model/layer.h"
#include "zt/model/param.h"

namespace zt::test {

namespace {

// What one rank is given and what it gives back.
struct Errand {
  Value task;
  Value result = {};
  std::optional<lua::ScriptError> error = {};
};

thread_local Errand* errand = nullptr;  // of this thread's rank; null outside of `run`

std::string field_of_package(lua_State* L, const char* name) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, name);
  const std::string value = lua_tostring(L, -1);
  lua_pop(L, 2);
  return value;
}

// A state whose script failed stays open: objects in it may wait for other ranks when they are destroyed.
void run_rank(const World& world, const lua::SearchPaths& paths, const std::string& script, Errand& mine) {
  errand = &mine;
  try {
    lua_State* L = lua::new_state(world, paths);
    mine.error = lua::run_script(L, script, {});
    if (!mine.error) lua_close(L);
  } catch (const std::exception& error) {
    mine.error = lua::ScriptError{error.what(), "", false};
  }
  if (mine.error) world.threads->abort();
  errand = nullptr;
}

// The first error that is not only the consequence of another one.
const Errand* cause(const std::vector<Errand>& errands) {
  const Errand* found = nullptr;
  for (const Errand& each : errands) {
    if (each.error && (!found || (found->error->is_aborted && !each.error->is_aborted))) found = &each;
  }
  return found;
}

// run(ranks, path, task): runs the script at `path` on `ranks` ranks. Returns the list of what they gave, or nil, the error of
// one of them, and its rank. A failed rank ends the others.
int run(lua_State* L) {
  const auto ranks = static_cast<int>(lua::check_integer(L, 1));
  const std::string script = lua::check_string(L, 2);
  const lua::SearchPaths paths{field_of_package(L, "path"), field_of_package(L, "cpath")};
  std::vector<Errand> errands(static_cast<size_t>(ranks), Errand{lua::check_value(L, 3)});
  const auto group = std::make_shared<ThreadGroup>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    const World world{.rank = rank, .size = ranks, .launch = Launch::threads, .ranks_per_node = ranks, .threads = group};
    threads.emplace_back(
        [=, &script, &paths, &mine = errands[static_cast<size_t>(rank)]] { run_rank(world, paths, script, mine); });
  }
  for (auto& thread : threads) thread.join();
  if (const Errand* failed = cause(errands)) {
    lua_pushnil(L);
    lua::push(L, failed->error->message);
    lua::push(L, static_cast<int64_t>(failed - errands.data()));
    return 3;
  }
  Value::List results;
  for (Errand& each : errands) results.push_back(std::move(each.result));
  lua::push(L, Value(std::move(results)));
  return 1;
}

// task(): in a script that `run` has started, returns its task; else nil.
int task(lua_State* L) {
  if (!errand) return 0;
  lua::push(L, errand->task);
  return 1;
}

// give(value): sets what `run` returns for this rank.
int give(lua_State* L) {
  if (!errand) misuse("give: this script was not started by ranks.run");
  errand->result = lua::check_value(L, 1);
  return 0;
}

// param(values): returns a Param, which several layers in Lua may hold.
int param(lua_State* L) {
  const at::Tensor values = lua::check_tensor(L, 1);
  auto made = std::make_shared<Param>();
  made->name = "tied";
  made->shape = values.sizes().vec();
  made->init = init_tensor(values);
  made->is_matrix = values.dim() >= 2;
  lua::push(L, made);
  return 1;
}

// falsify(layer, end_of_name, axis): takes away what parameters of the layer with such names state of the axis, as if a module
// had forgotten it. Returns the layer and the number of these parameters.
int falsify(lua_State* L) {
  const auto layer = lua::check<Layer>(L, 1);
  const std::string end = lua::check_string(L, 2), axis = lua::check_string(L, 3);
  int64_t forgotten = 0;
  for (const auto& param : layer->params()) {
    if (!param->name.ends_with(end)) continue;
    forgotten += static_cast<int64_t>(std::erase_if(param->placements, [&](const AxisPlacement& on) { return on.axis == axis; }));
  }
  lua_pushvalue(L, 1);
  lua::push(L, forgotten);
  return 2;
}

int tally(lua_State* L) {
  lua::push(L, make_tally());
  return 1;
}

}  // namespace

}  // namespace zt::test

ZT_LUA_MODULE(ranks) {
  using namespace zt::test;
  module.function<run>("run").function<task>("task").function<give>("give").function<param>("param");
  module.function<falsify>("falsify").function<tally>("tally");
}
