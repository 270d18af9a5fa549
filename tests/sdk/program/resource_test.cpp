// Types of resources and their registry.
#include "zt/program/resource.h"

#include <gtest/gtest.h>

#include <set>

#include "support/message.h"
#include "zt/base/error.h"
#include "zt/model/model.h"

namespace zt::test {
namespace {

TEST(ResourceTypes, HaveTheNamesOfTheirConstants) {
  for (const auto& [name, id] : {std::pair{"param", resource::param},
                                 {"master", resource::master},
                                 {"grad", resource::grad},
                                 {"state", resource::state},
                                 {"value", resource::value},
                                 {"graph", resource::graph},
                                 {"value_grad", resource::value_grad},
                                 {"buffers", resource::buffers},
                                 {"deferred", resource::deferred},
                                 {"scalars", resource::scalars},
                                 {"staging", resource::staging},
                                 {"slot", resource::slot},
                                 {"shard", resource::shard},
                                 {"grad_shard", resource::grad_shard},
                                 {"cache", resource::cache}}) {
    EXPECT_EQ(type_of(id).name, name);
    EXPECT_EQ(resource_id(name), id);
    EXPECT_FALSE(type_of(id).doc.empty());
  }
}

// A type that reports count has bytes that plans count and tensors that are measured. A type whose data no one can reach by name
// is listed here.
TEST(ResourceTypes, SayWhereTheirDataLie) {
  const std::set<ResourceId> without{resource::graph, resource::deferred, resource::scalars, resource::shard,
                                     resource::grad_shard};
  for (const ResourceId id : resource_ids()) {
    const ResourceType& type = type_of(id);
    EXPECT_EQ(bytes_of(id) != nullptr, !type.memory.empty()) << type.name;
    EXPECT_EQ(tensors_of(id) != nullptr, !without.contains(id)) << type.name;
  }
}

TEST(ResourceTypes, KeepTheirFacts) {
  const ResourceType residual{.name = "test_residual", .index = Index::unit, .saved_as = "residual"};
  const ResourceId id = register_resource(residual);
  EXPECT_EQ(register_resource(residual), id);
  EXPECT_EQ(type_of(id).index, Index::unit);
  ResourceType other = residual;
  other.saved_as.clear();
  EXPECT_CONTAINS(message_of<Misuse>([&] { register_resource(other); }),
                  "the resource type 'test_residual' is registered already with the name 'residual' in checkpoints");
  other = residual;
  other.index = Index::layer;
  EXPECT_CONTAINS(message_of<Misuse>([&] { register_resource(other); }), "registered already with another index (units)");
  set_tensors(id, [](const Resource&, const StepState&) { return std::vector<NamedTensor>{}; });
  const TensorsOf* first = tensors_of(id);
  set_tensors(id, [](const Resource&, const StepState&) { return std::vector<NamedTensor>{{"x", {}}}; });
  EXPECT_EQ(tensors_of(id), first);
}

TEST(ResourceTypes, RefuseWhatIsWrong) {
  EXPECT_CONTAINS(message_of<Misuse>([] { register_resource({.name = "Residual"}); }), "use lower-case letters");
  EXPECT_CONTAINS(message_of<Misuse>([] { register_resource({.name = "cut", .index = Index::layer, .has_slices = true}); }),
                  "the resource type 'cut' has slices, but its index counts layers");
  EXPECT_CONTAINS(message_of<Misuse>([] { register_resource({.name = "log", .saved_as = "log"}); }),
                  "the resource type 'log' is saved, but it is not of units or layers");
  EXPECT_CONTAINS(message_of<Misuse>([] { resource_id("grads"); }), "did you mean 'grad'?");
  EXPECT_CONTAINS(message_of<Misuse>([] { type_of(ResourceId{999}); }), "there is no resource type number 999");
}

TEST(Resource, ExistsWithinTheModel) {
  ModelInfo model;
  model.positions.resize(3);
  for (int i = 0; i < 3; ++i) model.positions[static_cast<size_t>(i)].layer = i / 2;
  model.units.resize(4);
  EXPECT_EQ(count_of(Index::layer, model), 2);
  EXPECT_TRUE(exists({resource::param, 3}, model, 2));
  EXPECT_FALSE(exists({resource::param, 4}, model, 2));
  EXPECT_TRUE(exists({resource::grad, 0, -1, 2, 3}, model, 2));
  EXPECT_FALSE(exists({resource::grad, 0, -1, 3, 3}, model, 2));
  EXPECT_TRUE(exists({resource::value, 2, 1}, model, 2));
  EXPECT_FALSE(exists({resource::value, 2, 2}, model, 2));
  EXPECT_FALSE(exists({resource::value, 2}, model, 2));
  EXPECT_TRUE(exists({resource::buffers, 1}, model, 2));
  EXPECT_FALSE(exists({resource::buffers, 2}, model, 2));
  EXPECT_TRUE(exists({resource::scalars}, model, 2));
  EXPECT_FALSE(exists({resource::scalars, 1}, model, 2));
}

}  // namespace
}  // namespace zt::test
