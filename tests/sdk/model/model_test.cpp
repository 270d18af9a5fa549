#include "zt/model/model.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "zt/base/error.h"
#include "zt/model/layer_extras.h"

namespace zt {
namespace {

std::shared_ptr<Param> make_param(const std::string& name, std::vector<int64_t> shape) {
  auto param = std::make_shared<Param>();
  param->name = name;
  param->shape = std::move(shape);
  return param;
}

struct StubLayer final : Layer {
  StubLayer(Params params, Io io) : params_(std::move(params)), io_(std::move(io)) {}
  std::vector<at::Tensor> forward(at::TensorList in, Context&) override { return in.vec(); }
  Params params() const override { return params_; }
  Io io() const override { return io_; }
  std::string kind() const override { return "stub"; }

  Params params_;
  Io io_;
};

std::shared_ptr<Layer> source(Params params = {}, std::vector<Output> outputs = {Output{}}) {
  return std::make_shared<StubLayer>(std::move(params), Io{{}, std::move(outputs)});
}
std::shared_ptr<Layer> stub(Params params = {}, Io io = {}) {
  return std::make_shared<StubLayer>(std::move(params), std::move(io));
}

std::string misuse_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Misuse& error) {
    return error.what();
  }
  return "no Misuse";
}

TEST(Model, LaysParametersOutAtMultiplesOf32) {
  const Model model({{"a", source({make_param("w", {5, 7}), make_param("b", {32}), make_param("c", {0}), make_param("d", {1})})}},
                    3);
  const ModelInfo& info = model.info();
  ASSERT_EQ(info.units.size(), 1U);
  ASSERT_EQ(info.params.size(), 4U);
  EXPECT_EQ(info.params[0].offset, 0);
  EXPECT_EQ(info.params[1].offset, 64);
  EXPECT_EQ(info.params[2].offset, 96);
  EXPECT_EQ(info.params[3].offset, 96);
  EXPECT_EQ(info.units[0].numel, 97);
  EXPECT_EQ(info.params[0].name, "a.w");
  EXPECT_EQ(info.params[0].room, 35);
  EXPECT_EQ(model.params()[1]->name, "a.b");
  EXPECT_EQ(model.seed(), 3U);
}

TEST(Model, GivesAUnitToLayersWithParametersOnly) {
  const Model model({{"in", source()}, {"a", stub({make_param("w", {2})})}, {"mid", stub()}, {"b", stub({make_param("w", {3})})}},
                    0);
  ASSERT_EQ(model.info().units.size(), 2U);
  EXPECT_EQ(model.info().units[1].name, "b");
  EXPECT_TRUE(model.info().positions[0].units.empty());
  EXPECT_EQ(model.info().positions[3].units, std::vector<int>{1});
  const std::string text = summary(model.info());
  EXPECT_NE(text.find("4 positions, 2 units, 5 parameters"), std::string::npos) << text;
}

TEST(Model, TiedParametersAndOtherPlacementsAreUnitsOfTheirOwn) {
  const auto tied = make_param("tied", {4}), local = make_param("local", {3}), cut = make_param("cut", {2, 3});
  cut->placements = {{"tp", Placement::sharded, 1, 2}};
  const Model model({{"a", source({tied, local, cut, make_param("more", {2})})}, {"b", stub({tied})}}, 0);
  const ModelInfo& info = model.info();
  ASSERT_EQ(info.units.size(), 3U);
  EXPECT_EQ(info.units[0].name, "a.tied");
  EXPECT_EQ(info.units[1].name, "a");
  EXPECT_EQ(info.units[1].params, (std::vector<int>{1, 3}));
  EXPECT_EQ(info.units[2].name, "a.cut");
  EXPECT_EQ(info.positions[0].units, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(info.params[2].cut_axes(), (std::vector<std::string>{"tp"}));
  const Coord coord{MeshShape({{"dp", 2}, {"tp", 2}}, 4), 3};
  EXPECT_EQ(info.params[2].boxes(coord), (std::vector<Box>{{{0, 2}, {2, 3}}}));
  EXPECT_EQ(info.params[2].local_shape(coord), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(info.params[2].local_numel(coord), 2);
  EXPECT_EQ(info.params[2].room, 4) << "that of the largest share";
  EXPECT_EQ(info.params[2].numel(), 6);
}

TEST(Model, ParametersCutDifferentlyAlongOneAxisShareAUnit) {
  const auto rows = make_param("rows", {4, 3}), columns = make_param("columns", {3, 4}), whole = make_param("whole", {3}),
             stated = make_param("stated", {3});
  rows->placements = {{"tp", Placement::sharded, 0, 2}};
  columns->placements = {{"tp", Placement::sharded, 1, 2, {{2, 1}, {2, 1}}}};
  stated->placements = {{"tp", Placement::replicated_same_data}, {"dp", Placement::replicated_other_data}};
  const Model model({{"a", source({rows, whole, columns, stated})}}, 0);
  ASSERT_EQ(model.info().units.size(), 2U);
  EXPECT_EQ(model.info().units[0].params, (std::vector<int>{0, 2}));
  EXPECT_EQ(model.info().units[1].params, (std::vector<int>{1, 3})) << "stating the default changes nothing";
}

TEST(Model, RefusesPlacementsThatMakeNoBox) {
  const auto refused = [](std::vector<AxisPlacement> placements) {
    const auto param = make_param("w", {4, 2});
    param->placements = std::move(placements);
    return misuse_of([&] { Model({{"a", source({param})}}, 0); });
  };
  EXPECT_NE(refused({{"tp", Placement::sharded, 2, 2}}).find("is cut along dim 2 on axis 'tp', but it has 2 dims"),
            std::string::npos);
  EXPECT_NE(refused({{"tp", Placement::sharded, 0, 0}}).find("into 0 parts"), std::string::npos);
  EXPECT_NE(refused({{"tp", Placement::sharded, 0, 2, {{3, 1}}}}).find("in groups of 3 rows together, but its dim 0 has 4"),
            std::string::npos);
  EXPECT_NE(refused({{"tp", Placement::sharded, 0, 2, {{1, 1}, {3, 2}}}}).find("a group of 3 rows in units of 2"),
            std::string::npos);
  EXPECT_NE(refused({{"tp", Placement::sharded, 0, 2, {{2, 1}, {2, 1}}}, {"ep", Placement::sharded, 0, 2}})
                .find("the axes 'tp' and 'ep' cut dim 0 of parameter 'a.w' in different groups"),
            std::string::npos);
  EXPECT_NE(refused({{"tp", Placement::sharded, 0, 2}, {"tp", Placement::sharded, 1, 2}}).find("two placements on axis 'tp'"),
            std::string::npos);
}

TEST(Model, TiedParameterBelongsToTheFirstLayer) {
  const auto shared = make_param("weight", {4, 2});
  const Model model(
      {{"embedding", source({shared})}, {"x", stub({make_param("w", {1})})}, {"head", stub({make_param("n", {2}), shared})}}, 0);
  const ModelInfo& info = model.info();
  ASSERT_EQ(info.params.size(), 3U);
  EXPECT_EQ(shared->name, "embedding.weight");
  EXPECT_EQ(info.params[0].positions, (std::vector<int>{0, 2}));
  EXPECT_EQ(info.units[0].positions, (std::vector<int>{0, 2}));
  EXPECT_EQ(info.positions[2].units, (std::vector<int>{0, 2}));
  EXPECT_EQ(info.units[2].params, std::vector<int>{2});
  EXPECT_EQ(info.units[2].numel, 2);
}

TEST(Model, ALayerUsedTwiceHasTwoPositionsAndOneUnit) {
  const auto twice = stub({make_param("w", {2})});
  const Model model({{"in", source()}, {"a", twice}, {"", twice}}, 0);
  const ModelInfo& info = model.info();
  EXPECT_EQ(info.positions[2].name, "a");
  EXPECT_EQ(info.positions[2].layer, info.positions[1].layer);
  EXPECT_EQ(info.units[0].positions, (std::vector<int>{1, 2}));
  EXPECT_EQ(info.positions[2].inputs, (std::vector<Edge>{{1, 0}}));
}

TEST(Model, InputsTakeTheLatestEarlierOutput) {
  const Model model({{"in", source({}, {{"h"}, {"skip"}})}, {"a", stub()}, {"b", stub({}, {{"skip", "h"}, {{"h"}}})}}, 0);
  EXPECT_EQ(model.info().positions[1].inputs, (std::vector<Edge>{{0, 0}}));
  EXPECT_EQ(model.info().positions[2].inputs, (std::vector<Edge>{{0, 1}, {1, 0}}));
}

TEST(Model, NamesAreNotPrefixedTwice) {
  const auto layer = source({make_param("w", {2})});
  const auto first = std::make_shared<Model>(std::vector<NamedLayer>{{"a", layer}}, 0);
  const auto longer = first->append({"b", stub({make_param("w", {2})})});
  EXPECT_EQ(longer->info().params[0].name, "a.w");
  EXPECT_EQ(longer->info().params[1].name, "b.w");
  EXPECT_EQ(first->info().positions.size(), 1U);
  const Model renamed({{"other", layer}}, 0);
  EXPECT_EQ(renamed.info().params[0].name, "other.w");
  EXPECT_EQ(first->info().params[0].name, "a.w");
}

TEST(Model, AUnitIsTrainedAsAWholeOrNotAtAll) {
  auto frozen = make_param("f", {3});
  frozen->trainable = false;
  Model model({{"a", source({frozen, make_param("w", {2}), make_param("v", {4})})}}, 0);
  const auto units = [&] {
    std::vector<std::pair<std::string, bool>> units;
    for (const UnitInfo& unit : model.info().units) units.emplace_back(unit.name, unit.trainable);
    return units;
  };
  using Units = std::vector<std::pair<std::string, bool>>;
  EXPECT_EQ(units(), (Units{{"a", false}, {"a.w", true}}));
  EXPECT_EQ(model.info().params[1].offset, 0);
  EXPECT_EQ(model.info().params[2].offset, 32);
  const auto before = model.shared_info();
  model.set_trainable("a.v", false);
  EXPECT_EQ(units(), (Units{{"a", false}, {"a.w", true}}));
  EXPECT_EQ(model.info().params[2].unit, 0);
  model.set_trainable("a", true);
  EXPECT_EQ(units(), (Units{{"a", true}}));
  EXPECT_EQ(before->units.size(), 2U);
}

struct BufferLayer final : Layer, LayerExtras {
  std::vector<at::Tensor> forward(at::TensorList in, Context&) override { return in.vec(); }
  Params params() const override { return {param}; }
  std::vector<LayerBuffer> buffers() const override { return {{"bias", initial}, {"count", at::zeros({1})}}; }
  bool has_update() const override { return true; }
  std::string kind() const override { return "buffer"; }

  std::shared_ptr<Param> param = make_param("weight", {2});
  at::Tensor initial = at::zeros({3});
};

// A layer is updated as long as one of its buffers is trainable.
TEST(Model, BuffersAreFrozenByName) {
  Model model({{"in", source()}, {"a", std::make_shared<BufferLayer>()}, {"b", std::make_shared<BufferLayer>()}}, 0);
  const auto updates = [&] {
    return std::vector<bool>{model.info().positions[1].has_update, model.info().positions[2].has_update};
  };
  ASSERT_EQ(model.info().buffers.size(), 4U);
  EXPECT_EQ(model.info().buffers[3].name, "b.count");
  EXPECT_EQ(model.set_trainable("^a\\.weight", false), 1);
  EXPECT_EQ(model.set_trainable("bias", false), 2);
  EXPECT_EQ(updates(), (std::vector<bool>{true, true}));
  EXPECT_EQ(model.set_trainable("^b\\.", false), 3);
  EXPECT_EQ(updates(), (std::vector<bool>{true, false}));
  EXPECT_EQ(model.set_trainable("b\\.count", true), 1);
  EXPECT_EQ(updates(), (std::vector<bool>{true, true}));
  EXPECT_EQ(misuse_of([&] { model.set_trainable("a\\.biass", false); }),
            "no parameter or buffer has a name that contains 'a\\.biass': did you mean 'a.bias'?");
}

TEST(Model, ABufferBeginsInHostMemoryAsFloats) {
  const auto layer = std::make_shared<BufferLayer>();
  for (const at::Tensor& wrong : {at::Tensor(), at::zeros({3}, at::kLong), at::zeros({3}, at::kMeta)}) {
    layer->initial = wrong;
    EXPECT_NE(misuse_of([&] {
                Model({{"in", source()}, {"a", layer}}, 0);
              }).find("the buffer 'bias' of the layer 'a' must begin as a float32 or float64 tensor in host memory"),
              std::string::npos);
  }
}

TEST(Model, WhatWasDescribedBeforeDoesNotChange) {
  Model model({{"a", source({make_param("w", {2})})}}, 0);
  const auto before = model.shared_info();
  model.set_trainable("w", false);
  EXPECT_TRUE(before->params[0].trainable);
  EXPECT_TRUE(before->units[0].trainable);
  EXPECT_FALSE(model.info().params[0].trainable);
  EXPECT_FALSE(model.info().units[0].trainable);
}

TEST(Model, EmptyModelIsAModel) {
  EXPECT_TRUE(Model({}, 0).info().positions.empty());
}

TEST(Model, RefusesWhatDoesNotFit) {
  EXPECT_EQ(misuse_of([] {
              Model({{"in", source({}, {{"hidden"}, {"mask"}})}, {"a", stub({}, {{"hiden"}, {}})}}, 0);
            }),
            "'a' (stub) reads 'hiden', which no earlier layer outputs: did you mean 'hidden'?");
  EXPECT_NE(misuse_of([] { Model({{"a", stub()}}, 0); }).find("no layer before it has an output"), std::string::npos);
  EXPECT_NE(misuse_of([] { Model({{"a", source()}, {"a", stub()}}, 0); }).find("two layers are named 'a'"), std::string::npos);
  EXPECT_NE(misuse_of([] { Model({{"", source()}}, 0); }).find("at position 0 has no name"), std::string::npos);
  EXPECT_NE(misuse_of([] { Model({{"a", nullptr}}, 0); }).find("holds no layer"), std::string::npos);
  EXPECT_NE(misuse_of([] {
              Model({{"a", source({make_param("w", {1}), make_param("w", {1})})}}, 0);
            }).find("'a.w'"),
            std::string::npos);
  EXPECT_NE(misuse_of([] { Model({{"a", source({}, {{"h"}, {"h"}})}}, 0); }).find("two outputs named 'h'"), std::string::npos);
}

TEST(Sink, WritesTheFirstSumAndAddsLaterOnes) {
  const at::Tensor view = at::full({2}, 7.0f), sum = at::full({2}, 0.5, at::kDouble);
  Context::Sink{view, true}.add(sum);
  EXPECT_TRUE(at::equal(view, at::full({2}, 0.5f)));
  Context::Sink{view, false}.add(sum);
  EXPECT_TRUE(at::equal(view, at::full({2}, 1.0f)));
  Context::Sink{}.add(sum);
}

TEST(Mode, HasOneName) {
  for (const Mode mode : kModes) EXPECT_EQ(parse_mode(word_of(mode)), mode);
  EXPECT_EQ(word_of(Mode::generate), "generate");
  EXPECT_NE(misuse_of([] { parse_mode("evl"); }).find("unknown mode 'evl': did you mean 'eval'?"), std::string::npos);
}

}  // namespace
}  // namespace zt
