// The two communicators of an axis: values go over the one in host memory, not over NCCL.
#include <gtest/gtest.h>

#include "comm/support/ranks.h"
#include "core/group.h"
#include "mesh/mesh.h"
#include "nccl_fixture.h"
#include "support/spawn.h"
#include "zt/comm/mesh.h"
#include "zt/lua/state.h"

extern "C" int luaopen_zt_comm(lua_State* L);

namespace zt::comm {

namespace {

using namespace fake;

TEST(NcclControl, GatherValuesStaysInHostMemory) {
  test::spawn(2, [](const World& world) {
    Log log;
    Nccl nccl{log};
    const auto group = whole_group(world, "dp");
    const auto host = test::world_communicator(world);
    auto backend =
        make_nccl_backend(test::world_communicator(world), group, SumOrder::any, nccl.api, std::make_shared<Streams>(log));
    const auto axis = std::make_shared<Axis>();
    axis->name = "dp";
    axis->size = world.size;
    axis->coordinate = world.rank;
    axis->communicator = std::make_shared<CheckedCommunicator>(std::move(backend));
    axis->control = host;
    log.take();
    const std::unique_ptr<lua_State, decltype(&lua_close)> state(luaL_newstate(), lua_close);
    lua_State* L = state.get();
    luaL_openlibs(L);
    lua::set_world(L, world);
    luaopen_zt_comm(L);
    lua::push(L, axis);
    lua_setglobal(L, "axis");
    const char* script = R"lua(
      local values = axis:gather_values{rank = axis.rank}
      assert(#values == 2 and values[1].rank == 0 and values[2].rank == 1)
      axis:set_timeout(5)
    )lua";
    EXPECT_EQ(luaL_dostring(L, script), 0) << lua_tostring(L, -1);
    EXPECT_EQ(log.take(), Lines());
  });
}

TEST(NcclControl, HostBackendsHaveOneCommunicator) {
  test::spawn(2, [](const World& world) {
    const auto axis = make_mesh(world, {.axes = {{"dp", 2}}})->axis("dp");
    EXPECT_EQ(axis->control, axis->communicator);
  });
}

}  // namespace

}  // namespace zt::comm
