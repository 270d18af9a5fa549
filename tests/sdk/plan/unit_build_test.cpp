// Unit buffers: which communicator each comes from.
#include "model/unit_build.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"

namespace zt::test {
namespace {

using AxesList = std::vector<std::vector<std::string>>;

// Returns the axes of the communicators that were asked for buffers, in order. The gradient is in a slot at stage 2 and above.
AxesList axes_asked_for(int stage, UnitPlan plan) {
  const ModelInfo model = chain(0);
  Unit unit = describe_unit(model, 0, plan, {});
  const at::Tensor slot = at::zeros({unit.layout.padded()});
  AxesList asked;
  const AllocateFn allocate = [&](const std::vector<std::string>& axes, int64_t numel, at::ScalarType dtype) {
    asked.push_back(axes);
    return at::zeros({numel}, dtype);
  };
  const SharedBuffers shared{stage >= 3 ? slot : at::Tensor(), stage >= 2 ? slot : at::Tensor()};
  allocate_unit(unit, model.units[0], Precision::fp32, {}, allocate, shared);
  return asked;
}

TEST(UnitBuild, BuffersComeFromTheCommunicatorThatMovesThem) {
  EXPECT_EQ(axes_asked_for(1, plan_of_stage(1)), (AxesList{{"dp"}, {"dp"}}));
  EXPECT_EQ(axes_asked_for(2, plan_of_stage(2)), (AxesList{{"dp"}, {"dp"}}));
}

TEST(UnitBuild, ASumOverReplicasComesFromTheirCommunicator) {
  for (const int stage : {2, 3}) {
    UnitPlan plan = plan_of_stage(stage);
    plan.sum_axes = {"replica", "dp"};
    EXPECT_EQ(axes_asked_for(stage, plan), (AxesList{{"dp"}, {"replica"}})) << "stage " << stage;
  }
}

}  // namespace
}  // namespace zt::test
