// Meshes: the arithmetic of ranks, the options of a script, and communication along axes.
#include "zt/comm/mesh.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "mesh/make_backend.h"
#include "mesh/mesh.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

std::vector<int> group(const MeshShape& shape, int rank, std::vector<std::string> axes) {
  return shape.group(rank, axes);
}

TEST(MeshShape, LastAxisVariesFastest) {
  const MeshShape shape({{"pp", 2}, {"dp", 3}, {"tp", 2}}, 12);
  EXPECT_EQ(shape.coordinate(7, "pp"), 1);
  EXPECT_EQ(shape.coordinate(7, "dp"), 0);
  EXPECT_EQ(shape.coordinate(7, "tp"), 1);
  EXPECT_EQ(group(shape, 7, {"tp"}), (std::vector<int>{6, 7}));
  EXPECT_EQ(group(shape, 7, {"dp"}), (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(group(shape, 7, {"pp"}), (std::vector<int>{1, 7}));
  EXPECT_EQ(group(shape, 7, {"dp", "tp"}), (std::vector<int>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(group(shape, 7, {"tp", "dp"}), (std::vector<int>{6, 8, 10, 7, 9, 11}));
  EXPECT_EQ(shape.text(), "pp=2 x dp=3 x tp=2");
}

TEST(MeshShape, InfersWhatIsLeft) {
  EXPECT_EQ(MeshShape({{"dp", -1}, {"tp", 4}}, 12).size("dp"), 3);
  EXPECT_EQ(MeshShape({{"dp", -1}}, 1).size("dp"), 1);
}

TEST(MeshShape, RefusalsShowTheArithmetic) {
  EXPECT_SAYS("mesh dp=2 x tp=3: the product 6 is not the 4 ranks of this run", MeshShape({{"dp", 2}, {"tp", 3}}, 4));
  EXPECT_SAYS("the product 3 does not divide the 4 ranks", MeshShape({{"dp", -1}, {"tp", 3}}, 4));
  EXPECT_SAYS("only one axis may be -1", MeshShape({{"dp", -1}, {"tp", -1}}, 4));
  EXPECT_SAYS("axis 'dp' is given twice", MeshShape({{"dp", 2}, {"dp", 2}}, 4));
  EXPECT_SAYS("at least one rank", MeshShape({{"dp", 0}}, 4));
  EXPECT_SAYS("has no axis 'dq': did you mean 'dp'?", MeshShape({{"dp", 2}, {"tp", 2}}, 4).size("dq"));
}

Value table(Value::Table entries) {
  return Value(std::move(entries));
}

TEST(MeshOptions, OneAxisNeedsNoOrder) {
  const auto options = parse_mesh_options(table({{"dp", -1}, {"timeout", 1.5}, {"backend", "null"}}));
  ASSERT_EQ(options.axes.size(), 1u);
  EXPECT_EQ(options.axes[0].name, "dp");
  EXPECT_EQ(options.axes[0].size, -1);
  EXPECT_EQ(options.settings.timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.backend, "null");
}

TEST(MeshOptions, OrderIsSlowestToFastest) {
  const auto options = parse_mesh_options(table({{"dp", 2}, {"tp", 3}, {"pp", 4}, {"order", Value::List{"tp", "pp", "dp"}}}));
  ASSERT_EQ(options.axes.size(), 3u);
  EXPECT_EQ(options.axes[0].name, "tp");
  EXPECT_EQ(options.axes[2].name, "dp");
  EXPECT_EQ(options.axes[2].size, 2);
}

TEST(MeshOptions, BackendsByAxisAndHowTheyBehave) {
  const auto options = parse_mesh_options(table({{"dp", 2},
                                                 {"tp", 2},
                                                 {"order", Value::List{"dp", "tp"}},
                                                 {"backend", Value::Table{{"dp", "mpi"}}},
                                                 {"check", "full"},
                                                 {"sum_order", "any"},
                                                 {"ranks_per_node", 2}}));
  EXPECT_EQ(options.backend, "");
  EXPECT_EQ(options.backends, (std::map<std::string, std::string>{{"dp", "mpi"}}));
  EXPECT_EQ(options.settings.check, CheckMode::full);
  EXPECT_EQ(options.settings.sum_order, SumOrder::any);
  EXPECT_EQ(options.settings.ranks_per_node, 2);
  const auto usual = parse_mesh_options(table({{"tp", 2}, {"dp", 3}, {"pp", 4}}));
  EXPECT_EQ(MeshShape(usual.axes, 24).text(), "pp=4 x dp=3 x tp=2");
  EXPECT_EQ(parse_mesh_options(table({{"dp", 2}})).settings.sum_order, std::nullopt);
}

TEST(MeshOptions, Refusals) {
  EXPECT_SAYS("comm.mesh{dp = -1} takes all ranks", parse_mesh_options(table({})));
  EXPECT_SAYS("a table of axes expected", parse_mesh_options(Value(3)));
  EXPECT_SAYS("a Lua table has no order", parse_mesh_options(table({{"dp", 2}, {"replica", 2}})));
  EXPECT_SAYS("has to hold each axis once", parse_mesh_options(table({{"dp", 2}, {"order", Value::List{"tp"}}})));
  EXPECT_SAYS("did you mean 'backend'", parse_mesh_options(table({{"dp", 2}, {"bakend", "mpi"}})));
  EXPECT_SAYS("must be one of 'shm', 'mpi', 'two_level', 'local', 'null', 'nccl'",
              parse_mesh_options(table({{"dp", 2}, {"backend", "smoke"}})));
  EXPECT_SAYS("comm.mesh.backend: the mesh has no axis 'tp'",
              parse_mesh_options(table({{"dp", 2}, {"backend", Value::Table{{"tp", "mpi"}}}})));
  EXPECT_SAYS("comm.mesh.backend.dp must be one of",
              parse_mesh_options(table({{"dp", 2}, {"backend", Value::Table{{"dp", "smoke"}}}})));
  EXPECT_SAYS("comm.mesh.backend", parse_mesh_options(table({{"dp", 2}, {"backend", 7}})));
  EXPECT_SAYS("comm.mesh.check must be one of 'first', 'full'", parse_mesh_options(table({{"dp", 2}, {"check", "all"}})));
  EXPECT_SAYS("comm.mesh.sum_order must be one of 'fixed', 'any'", parse_mesh_options(table({{"dp", 2}, {"sum_order", "x"}})));
  EXPECT_SAYS("comm.mesh.ranks_per_node must be at least 1", parse_mesh_options(table({{"dp", 2}, {"ranks_per_node", 0}})));
  EXPECT_SAYS("comm.mesh.timeout must be above 0", parse_mesh_options(table({{"dp", 2}, {"timeout", -1}})));
  EXPECT_SAYS("comm.mesh.dp", parse_mesh_options(table({{"dp", 1.5}})));
}

// A dry run has no ranks, but must tell passes whether the ranks would share memory.
TEST(Mesh, InADryRunTheNullBackendStandsInForTheRuns) {
  const auto shares = [](int size, int ranks_per_node, Value::Table options) {
    World world{.size = size, .dry = true, .threads = nullptr};
    world.ranks_per_node = ranks_per_node;
    options.emplace("dp", -1);
    const auto axis = make_mesh(world, parse_mesh_options(options))->axis("dp");
    EXPECT_EQ(axis->communicator->backend(), "null");
    return axis->communicator->shares_memory();
  };
  EXPECT_FALSE(shares(4, 1, {}));
  EXPECT_FALSE(shares(4, 2, {}));
  EXPECT_TRUE(shares(4, 4, {}));
  EXPECT_TRUE(shares(4, 1, {{"ranks_per_node", 4}}));
  EXPECT_TRUE(shares(4, 4, {{"backend", "shm"}}));
  EXPECT_SAYS("backend 'shm' needs all ranks of axis 'dp' on one machine", shares(4, 1, {{"backend", "shm"}}));
  EXPECT_SAYS("backend 'two_level' does not suit axis 'dp'", shares(6, 3, {{"backend", "two_level"}}));
  EXPECT_FALSE(shares(4, 4, {{"backend", "mpi"}}));
}

// Six ranks, four on the first machine: one group of three is on one machine and the other is not.
TEST(Mesh, AnAxisHasOneLinkOnAllRanks) {
  for (int rank = 0; rank < 6; ++rank) {
    World world{.rank = rank, .size = 6, .dry = true, .threads = nullptr};
    world.ranks_per_node = 4;
    const auto mesh = make_mesh(world, parse_mesh_options(table({{"dp", 2}, {"tp", 3}, {"order", Value::List{"dp", "tp"}}})));
    EXPECT_EQ(mesh->axis("tp")->communicator->shares_memory(), rank < 3);
    EXPECT_EQ(mesh->axis("tp")->link, (AxisLink{"", false}));
    EXPECT_EQ(mesh->refactor({{"dp", -1}})->axis("dp")->link, mesh->world()->link);
  }
}

TEST(Mesh, APlanHasTheLinkOfTheRunThatItPlans) {
  const auto link = [](std::string backend, int ranks_per_node, Value::Table options) {
    World world{.size = 8, .dry = true, .threads = nullptr};
    world.ranks_per_node = ranks_per_node;
    world.backend = std::move(backend);
    options.emplace("dp", -1);
    return make_mesh(world, parse_mesh_options(options))->axis("dp")->link;
  };
  EXPECT_EQ(link("", 8, {}), (AxisLink{"shm", true}));
  EXPECT_FALSE(link("", 4, {}).shares_memory);
  EXPECT_EQ(link("nccl", 8, {}), (AxisLink{"nccl", false, /*is_on_device=*/true}));
  EXPECT_EQ(link("nccl", 8, {{"backend", "mpi"}}), (AxisLink{"mpi", false})) << "the script's backend goes before --backend";
  EXPECT_SAYS("ztoolkit plan: --backend must be one of", link("ncll", 8, {}));
  test::spawn(2, [](const World& world) {
    const auto axis = make_mesh(world, parse_mesh_options(table({{"dp", -1}})))->axis("dp");
    EXPECT_EQ(axis->link, (AxisLink{axis->communicator->backend(), axis->communicator->shares_memory()}));
  });
}

TEST(Mesh, BackendsThatDoNotSuitTheLaunch) {
  const World single;
  EXPECT_EQ(default_backend(single, {"dp", 0, {0}}), "local");
  EXPECT_SAYS("needs ranks started by mpirun", make_communicator(single, "mpi", {"dp", 0, {0}}));
  EXPECT_SAYS("ztoolkit run --threads 2", make_communicator({.size = 2, .threads = nullptr}, "local", {"dp", 0, {0, 1}}));
  EXPECT_SAYS("did you mean 'local'", make_communicator(single, "locl", {"dp", 0, {0}}));
}

TEST(Mesh, AxesCommunicateAlongThemselves) {
  test::spawn(4, [](const World& world) {
    const auto mesh = make_mesh(world, {.axes = {{"dp", 2}, {"tp", 2}}});
    const auto sum_along = [&](const Axis& axis) {
      auto tensor = at::full({1}, world.rank, at::kLong);
      axis.communicator->all_reduce(tensor, tensor);
      return tensor.item<int64_t>();
    };
    EXPECT_EQ(sum_along(*mesh->axis("tp")), world.rank < 2 ? 1 : 5);
    EXPECT_EQ(sum_along(*mesh->axis("dp")), world.rank % 2 == 0 ? 2 : 4);
    EXPECT_EQ(sum_along(*mesh->world()), 6);
    EXPECT_EQ(mesh->world()->coordinate, world.rank);
    const auto joined = mesh->join({"tp", "dp"});
    EXPECT_EQ(joined->name, "tp+dp");
    EXPECT_EQ(joined->coordinate, world.rank / 2 + world.rank % 2 * 2);
    EXPECT_EQ(sum_along(*joined), 6);
    EXPECT_EQ(mesh->join({"tp", "dp"}), joined);
    const auto other = mesh->refactor({{"ep", 4}});
    EXPECT_EQ(sum_along(*other->axis("ep")), 6);
    EXPECT_EQ(mesh->coord()["tp"], world.rank % 2);
    EXPECT_EQ(mesh->coord().size("none"), 1);
    EXPECT_SAYS("given twice", mesh->join({"dp", "dp"}));
    EXPECT_SAYS("has no axis 'td'", mesh->axis("td"));
  });
}

TEST(Mesh, AxesMayHaveBackendsOfTheirOwn) {
  test::spawn(4, [](const World& world) {
    MeshOptions options{.axes = {{"dp", 2}, {"tp", 2}}, .backend = "local", .backends = {{"tp", "shm"}}};
    const auto mesh = make_mesh(world, options);
    EXPECT_EQ(mesh->axis("dp")->communicator->backend(), "local");
    EXPECT_EQ(mesh->axis("tp")->communicator->backend(), "shm");
    EXPECT_EQ(mesh->world()->communicator->backend(), "local");
    const auto tensor = at::ones({1000});
    for (const char* axis : {"dp", "tp"}) mesh->axis(axis)->communicator->all_reduce(tensor, tensor);
    EXPECT_TRUE(tensor.eq(4).all().item<bool>());
    options.backends = {{"dp", "two_level"}};
    options.settings.ranks_per_node = 1;
    EXPECT_SAYS("backend 'two_level' does not suit axis 'dp': each of the 2 ranks is on a node of its own",
                make_mesh(world, options));
  });
}

TEST(Mesh, OneRankIsAMesh) {
  const auto mesh = make_mesh(World{}, {.axes = {{"dp", -1}, {"tp", 1}}});
  auto tensor = at::ones({3});
  mesh->axis("dp")->communicator->all_reduce(tensor, tensor);
  EXPECT_TRUE(tensor.eq(1).all().item<bool>());
  EXPECT_EQ(mesh->axis("tp")->communicator->backend(), "local");
}

}  // namespace

}  // namespace zt::comm
