// Unit buffers: which communicator each comes from.
#include "model/build/unit_build.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"

namespace zt::test {
namespace {

// Returns the axes of the communicators that were asked for buffers, in order. The gradient is in a slot at stage 2 and above.
std::vector<AxesList> axes_asked_for(int stage, UnitPlan plan) {
  const ModelInfo model = chain(0);
  Unit unit = describe_unit(model, 0, plan, {});
  const at::Tensor slot = at::zeros({unit.layout.padded()});
  std::vector<AxesList> asked;
  const AllocateFn allocate = [&](const AxesList& movers, int64_t numel, at::ScalarType dtype) {
    asked.push_back(movers);
    return at::zeros({numel}, dtype);
  };
  const SharedBuffers shared{stage >= 3 ? slot : at::Tensor(), stage >= 2 ? slot : at::Tensor()};
  allocate_unit(unit, model.units[0], Precision::fp32, {}, allocate, shared);
  return asked;
}

TEST(UnitBuild, BuffersComeFromTheCommunicatorThatMovesThem) {
  EXPECT_EQ(axes_asked_for(1, plan_of_stage(1)), (std::vector<AxesList>{{{"dp"}}, {{"dp"}}}));
  EXPECT_EQ(axes_asked_for(2, plan_of_stage(2)), (std::vector<AxesList>{{{"dp"}}, {{"dp"}}}));
}

TEST(UnitBuild, ASumOverReplicasComesFromTheirCommunicator) {
  for (const int stage : {1, 2, 3}) {
    UnitPlan plan = plan_of_stage(stage);
    plan.sum_axes = {"replica", "dp"};
    // At stage 1 the shard is a part of the whole gradient, which both communicators move.
    const AxesList gradient = stage == 1 ? AxesList{{"dp"}, {"replica"}} : AxesList{{"replica"}};
    EXPECT_EQ(axes_asked_for(stage, plan), (std::vector<AxesList>{{{"dp"}}, gradient})) << "stage " << stage;
  }
}

}  // namespace
}  // namespace zt::test
