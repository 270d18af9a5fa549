// Tests of where values live: in a trainer, not in its model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "execute/mesh_links.h"
#include "layers/layers.h"
#include "mesh/mesh.h"
#include "numerics/support/training.h"
#include "support/message.h"
#include "support/spawn.h"

namespace zt::test {
namespace {

using Table = Value::Table;

std::shared_ptr<Model> small_model(std::shared_ptr<Layer> middle) {
  return std::make_shared<Model>(
      std::vector<NamedLayer>{{"embedding", nn::make_embedding(Table{{"vocab", kVocab}, {"hidden", 9}})},
                              {"middle", std::move(middle)},
                              {"head", nn::make_lm_loss(Table{{"vocab", kVocab}, {"hidden", 9}})}},
      5);
}

TEST(Values, RanksOfAProcessMayShareAModel) {
  const auto model = [] { return small_model(nn::make_mlp(Table{{"hidden", 9}, {"ffn", 12}})); };
  for (const int stage : {0, 3}) {
    const Config own{.ranks = 4, .stage = stage, .steps = 3, .model = model};
    Config shared = own;
    shared.model = [one = model()] { return one; };
    expect_equal(train(shared), train(own));
  }
}

// Multiplies by a parameter that it lists, or by one that it does not list.
class Scaled : public Layer {
 public:
  explicit Scaled(std::shared_ptr<Param> used) : used_(std::move(used)) {
    own_->name = "own";
    own_->shape = {1};
    own_->init = init_ones();
  }
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    if (used_) return {in[0] * context.param(*used_)};
    EXPECT_TRUE(own_->get().is_same(context.param(*own_)));
    return {in[0] * own_->get()};
  }
  Params params() const override { return {own_}; }
  std::string kind() const override { return "scaled"; }

  const std::shared_ptr<Param> own_ = std::make_shared<Param>();

 private:
  std::shared_ptr<Param> used_;
};

std::shared_ptr<Trainer> trainer_of(std::shared_ptr<Model> model) {
  return Trainer::make(std::make_shared<Program>(std::move(model), 1, Precision::fp32), {});
}

TEST(Values, ALayerReadsTheParametersThatItLists) {
  const auto other = std::make_shared<Param>();
  other->name = "other";
  EXPECT_SAYS("layer 'middle' uses the parameter 'other', which its params() does not list: add it there",
              trainer_of(small_model(std::make_shared<Scaled>(other)))->evaluate(global_batch(0)));
  const auto good = std::make_shared<Scaled>(nullptr);
  trainer_of(small_model(good))->evaluate(global_batch(0));
  EXPECT_SAYS("parameter 'middle.own' is read outside of a layer's forward: its values belong to a trainer", good->own_->get());
}

TEST(Values, LinksAreMadeBeforeTheyAreUsed) {
  spawn(2, [](const World& world) {
    comm::MeshOptions options;
    options.axes = {{"dp", 2}, {"tp", 1}};
    const auto mesh = comm::make_mesh(world, options);
    const MeshLinks single(mesh, {}, {}), joined(mesh, {}, {.axes = {{"dp", "tp"}}});
    EXPECT_EQ(single.comm({"dp"}).size(), 2);
    EXPECT_EQ(joined.comm({"dp", "tp"}).size(), 2);
    EXPECT_SAYS("nothing in the program has declared to communicate over 'dp', 'tp' joined", single.comm({"dp", "tp"}));
    EXPECT_SAYS("the mesh dp=2 x tp=1 has no axis 'dq': did you mean 'dp'?", single.comm({"dq"}));
    EXPECT_SAYS("the program communicates over 'dp', but no pass gave it a mesh", MeshLinks(nullptr, {}, {}).comm({"dp"}));
  });
}

}  // namespace
}  // namespace zt::test
