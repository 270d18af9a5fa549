// Small models as plain data, for tests of programs.
#pragma once

#include <string>
#include <vector>

#include "zt/model/model.h"
#include "zt/model/unit.h"

namespace zt::test {

// Builds a ModelInfo. A unit has one parameter unless more are added.
class ModelMaker {
 public:
  int unit(const std::string& name, int64_t numel, bool trainable = true, std::vector<AxisPlacement> placements = {}) {
    const int index = static_cast<int>(info.units.size());
    info.units.push_back({name, {}, 0, {}, false});
    param(index, name + ".weight", numel, trainable, std::move(placements));
    return index;
  }

  void param(int unit, const std::string& name, int64_t numel, bool trainable, std::vector<AxisPlacement> placements = {}) {
    UnitInfo& owner = info.units[unit];
    const int64_t offset = (owner.numel + 31) / 32 * 32;
    owner.params.push_back(static_cast<int>(info.params.size()));
    owner.numel = offset + numel;
    owner.trainable = owner.trainable || trainable;
    info.params.push_back({name, {numel}, numel, unit, offset, trainable, true, {}, std::move(placements), {}});
  }

  // Adds a position that reads output 0 of each position in `inputs`, and has one output.
  int position(const std::string& name, const std::vector<int>& inputs, const std::vector<int>& units,
               bool differentiable = true) {
    const int index = static_cast<int>(info.positions.size());
    PositionInfo position{.name = name,
                          .kind = "test",
                          .layer = index,
                          .inputs = {},
                          .outputs = {{"h", differentiable}},
                          .units = units,
                          .axes = {}};
    for (const int input : inputs) position.inputs.push_back({input, 0});
    for (const int unit : units) {
      info.units[unit].positions.push_back(index);
      for (const int param : info.units[unit].params) info.params[param].positions.push_back(index);
    }
    info.positions.push_back(std::move(position));
    return index;
  }

  ModelInfo info;
};

// Returns a model of an embedding, `blocks` blocks and a head in a chain. Position p uses unit p. The embedding has no input.
inline ModelInfo chain(int blocks, int64_t numel = 100) {
  ModelMaker maker;
  int last = maker.position("embed", {}, {maker.unit("embed", numel)});
  for (int i = 0; i < blocks; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    last = maker.position(name, {last}, {maker.unit(name, numel)});
  }
  maker.position("head", {last}, {maker.unit("head", numel)});
  return maker.info;
}

// Returns the same model as `chain`, with the head's parameter tied to the embedding's.
inline ModelInfo tied_chain(int blocks) {
  ModelMaker maker;
  const int embed = maker.unit("embed", 100);
  int last = maker.position("embed", {}, {embed});
  for (int i = 0; i < blocks; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    last = maker.position(name, {last}, {maker.unit(name, 100)});
  }
  maker.position("head", {last}, {embed});
  return maker.info;
}

// Returns a model of an embedding, one block used twice, a frozen layer, a layer without parameters that adds a skip connection,
// and a head.
inline ModelInfo mixed_model() {
  ModelMaker maker;
  const int embed = maker.position("embed", {}, {maker.unit("embed", 70)});
  const int shared = maker.unit("shared", 33);
  const int first = maker.position("shared", {embed}, {shared});
  const int second = maker.position("shared", {first}, {shared});
  const int frozen = maker.position("frozen", {second}, {maker.unit("frozen", 50, false)});
  const int skip = maker.position("skip", {frozen, embed}, {});
  maker.position("head", {skip}, {maker.unit("head", 1)});
  return maker.info;
}

// Returns the plan of a unit as zero.shard{stage} makes it: summed over axis dp, and sharded along it from stage 1 on.
inline UnitPlan plan_of_stage(int stage) {
  UnitPlan plan{.sum_axes = {"dp"}};
  if (stage >= 1) plan.shard_axes = {"dp"};
  if (stage >= 1) plan.state = Residence::sharded;
  if (stage >= 2) plan.grads = Residence::sharded;
  if (stage >= 3) plan.params = Residence::sharded;
  return plan;
}

}  // namespace zt::test
