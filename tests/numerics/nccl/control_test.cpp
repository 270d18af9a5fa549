// Where the traffic of a step goes if an axis has one communicator for data and another for control, as with nccl.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "comm/nccl/nccl_fake.h"
#include "flat/adam.h"
#include "layers/layers.h"
#include "mesh/make_backend.h"
#include "nccl/nccl_backend.h"
#include "numerics/support/training.h"
#include "shard.h"
#include "support/spawn.h"
#include "zt/program/program.h"

namespace zt::test {
namespace {

using comm::fake::Lines;

// Makes the data communicators over a fake NCCL, which moves nothing.
struct FakeDevice {
  std::shared_ptr<Mesh> mesh_of(const World& world) {
    const auto make = [this, world](const std::vector<int>& ranks, const std::string& name) -> Communicators {
      const comm::Group group{name, world.rank, ranks};
      const auto host = [&](const char* use) { return comm::make_communicator(world, "local", group.renamed(name + use)); };
      auto backend = comm::make_nccl_backend(host("/host"), group, comm::SumOrder::any, nccl.api, streams);
      return {std::make_shared<comm::CheckedCommunicator>(std::move(backend)), host("/control")};
    };
    return Mesh::make(MeshShape({{"dp", world.size}}, world.size), world.rank, make);
  }
  // Returns NCCL's calls since the last call.
  Lines calls() {
    Lines lines = log.take();
    std::erase_if(lines, [](const std::string& line) {
      return line.starts_with("record") || line.starts_with("block") || line.starts_with("keep") || line == "(" || line == ")";
    });
    return lines;
  }

  comm::fake::Log log;
  comm::fake::Nccl nccl{log};
  std::shared_ptr<comm::fake::Streams> streams = std::make_shared<comm::fake::Streams>(log);
};

TEST(Control, AStepSendsOnlyGradientsOverNccl) {
  spawn(2, [&](const World& world) {
    FakeDevice device;
    const auto mesh = device.mesh_of(world);
    const auto model = nn::make_gpt(Value::Table{{"layers", 2}, {"hidden", 16}, {"heads", 2}, {"vocab", kVocab}, {"seq", kSeq}});
    const auto shard =
        zero::parse_shard_options(Value::Table{{"stage", int64_t{0}}, {"axis", Object::of<Axis>(mesh->axis("dp"))}});
    const auto program = std::make_shared<Program>(model, 1, Precision::fp32)->apply(zero::make_shard(shard));
    TrainerOptions options{.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-2}}), .clip = 0.5};
    const auto trainer = Trainer::make(program, options);
    device.calls();
    const StepResult result = trainer->step(part_of(global_batch(0), world.rank * kSamples / 2, kSamples / 2));
    const Lines calls = device.calls();
    EXPECT_EQ(result.samples, kSamples) << "counts are summed over the ranks";
    const auto losses = mesh->axis("dp")->control->all_gather_values(result.loss);
    EXPECT_EQ(*losses[0].get_if<double>(), *losses[1].get_if<double>()) << "and so are losses";
    EXPECT_EQ(calls.size(), trainer->state().units.size());
    for (const std::string& call : calls)
      EXPECT_NE(call.find(fmt::format("type {} op {} ", int{ncclFloat32}, int{ncclSum})), std::string::npos) << call;
    trainer->evaluate(part_of(global_batch(0), 0, kSamples / 2));
    EXPECT_EQ(device.calls(), Lines());
  });
}

}  // namespace
}  // namespace zt::test
