// The Lua API of zt.comm. Each rank is a thread with its own lua_State.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/spawn.h"
#include "zt/lua/state.h"

extern "C" int luaopen_zt_comm(lua_State* L);

namespace zt::comm {

namespace {

int make_ones(lua_State* L) {
  lua::push(L, at::ones({lua::check_integer(L, 1)}));
  return 1;
}

int sum(lua_State* L) {
  lua::push(L, lua::check_tensor(L, 1).sum().item<double>());
  return 1;
}

// Runs the script with the globals comm, rank, ones(n) and sum(t). Returns its error, or an empty string.
std::string run(const World& world, const char* script) {
  const std::unique_ptr<lua_State, decltype(&lua_close)> state(luaL_newstate(), lua_close);
  lua_State* L = state.get();
  luaL_openlibs(L);
  lua::set_world(L, world);
  luaopen_zt_comm(L);
  lua_setglobal(L, "comm");
  lua_pushinteger(L, world.rank);
  lua_setglobal(L, "rank");
  lua_register(L, "ones", lua::guarded<make_ones>);
  lua_register(L, "sum", lua::guarded<sum>);
  return luaL_dostring(L, script) == 0 ? "" : lua_tostring(L, -1);
}

void expect_runs(int ranks, const char* script) {
  test::spawn(ranks, [&](const World& world) { EXPECT_EQ(run(world, script), ""); });
}

TEST(Module, CollectivesOfAnAxis) {
  expect_runs(2, R"lua(
    local dp = comm.mesh{dp = -1}.dp
    assert(dp.name == "dp" and dp.size == 2 and dp.rank == rank and dp.coordinate == rank and dp.backend == "local")
    local t = ones(4)
    local work = dp:all_reduce(t, {async = true})
    work:wait()
    assert(work:done() and sum(t) == 8)
    dp:all_reduce(t, {op = "max"})
    local out = ones(4)
    dp:all_reduce(out, t)
    assert(sum(out) == 16)
    dp:all_reduce{out, t}
    assert(sum(out) == 32 and sum(t) == 16)
    local half, all = ones(2), ones(8)
    dp:reduce_scatter(half, ones(4))
    dp:all_gather(all, ones(4))
    dp:all_to_all(ones(4), ones(4), {out_splits = {2, 2}, in_splits = {2, 2}})
    dp:broadcast(t, 1)
    dp:reduce(rank == 0 and out or nil, t, 0)
    dp:gather(rank == 1 and all or nil, ones(4), 1)
    dp:scatter(half, rank == 0 and t or nil, 0)
    if rank == 0 then dp:send(t, 1) else dp:recv(t, 0) end
    dp:barrier()
    dp:drain()
    assert(sum(dp:allocate({2, 3})) == 0)
    assert(dp:duplicate("again").name == "again")
  )lua");
}

TEST(Module, PlainValuesOfAllRanks) {
  expect_runs(3, R"lua(
    local values = comm.mesh{dp = -1}.dp:gather_values({rank = rank, list = {1, 2, rank}})
    assert(#values == 3)
    for i, value in ipairs(values) do assert(value.rank == i - 1 and value.list[3] == i - 1) end
  )lua");
}

TEST(Module, Meshes) {
  expect_runs(4, R"lua(
    local mesh = comm.mesh{dp = 2, tp = -1, order = {"dp", "tp"}}
    assert(mesh.dp.rank == math.floor(rank / 2) and mesh.tp.rank == rank % 2)
    assert(mesh:axis("tp") == mesh.tp)
    assert(mesh:join{"tp", "dp"}.size == 4 and mesh:world().rank == rank)
    assert(mesh:refactor{ep = 4}.ep.size == 4)
    assert(tostring(mesh) == "mesh dp=2 x tp=2 (rank " .. rank .. " of 4)")
    assert(tostring(mesh.tp) == "axis tp (rank " .. rank % 2 .. " of 2, local)")
  )lua");
}

TEST(Module, ErrorsAreThatOfTheScript) {
  const auto expect_says = [](const char* script, const char* text) {
    const std::string said = run(World{}, script);
    EXPECT_NE(said.find(text), std::string::npos) << script << " said: " << said;
  };
  expect_says("local x = comm.mesh{dp = 1}.dq", "has no axis 'dq': did you mean 'dp'?");
  expect_says("comm.mesh{dp = 2}", "the product 2 is not the 1 ranks of this run");
  expect_says("comm.mesh{dp = 1}.dp:all_reduce(ones(1), {opp = 'sum'})", "'opp'");
  expect_says("comm.mesh{dp = 1}.dp:all_reduce(ones(1), {op = 'mux'})", "did you mean 'max'?");
  expect_says("comm.mesh{dp = 1}.dp:set_timeout(0)", "must be above 0");
  expect_says("comm.mesh(3)", "a table of axes expected");
}

}  // namespace

}  // namespace zt::comm
