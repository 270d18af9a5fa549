// A model: layers in order. A position is one use of a layer (a layer used twice has two positions).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/model/layer.h"

namespace zt {

// Output `output` of position `position`.
struct Edge {
  int position = -1;
  int output = 0;
  bool operator==(const Edge&) const = default;
};

struct PositionInfo {
  std::string name;  // "blocks.0"; the second use of a layer has the first one's name
  std::string kind;
  int layer = 0;             // index of the distinct layer
  std::vector<Edge> inputs;  // where each input comes from
  std::vector<Output> outputs;
  std::vector<int> units;         // units whose parameters it uses, ascending
  std::vector<std::string> axes;  // mesh axes its F, B and R communicate on
  bool splits_backward = false;
};

struct ParamInfo {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel = 0;
  int unit = 0;
  int64_t offset = 0;  // first element in the unit's flat layout, a multiple of 32
  bool trainable = true;
  bool is_matrix = true;
  std::vector<int> positions;  // where it is used, ascending; more than one for tied weights
  std::vector<AxisPlacement> placements;
  std::vector<std::string> dims;  // their meaning, "out" and "in"; empty: not said
};

struct UnitInfo {
  std::string name;            // the layer's name
  std::vector<int> params;     // indices into ModelInfo::params, by offset
  int64_t numel = 0;           // elements of the flat layout: the end of the last parameter, padding between included
  std::vector<int> positions;  // where its parameters are used, ascending
  bool trainable = true;       // at least one parameter is
};

// What passes, the verifier and reports need to know of a model. Plain data, the same on every rank.
struct ModelInfo {
  std::vector<PositionInfo> positions;
  std::vector<ParamInfo> params;
  std::vector<UnitInfo> units;
};

struct NamedLayer {
  std::string name;
  std::shared_ptr<Layer> layer;
};

class Trainer;

class Model {
 public:
  // The same layer may occur twice; a Param held by several layers is tied and belongs to the first one's unit.
  // Misuse when an input has no earlier output of its name, when two layers have one name, or a name is empty.
  Model(std::vector<NamedLayer> layers, uint64_t seed);

  // Trains the parameters in whose names the regular expression (ECMAScript) is found, or freezes them; returns how many.
  // Programs made before do not see it. Misuse when it matches none, and while a trainer holds the model.
  int set_trainable(const std::string& pattern, bool is_trainable);

  // A further model that ends with `layer`.
  std::shared_ptr<Model> append(NamedLayer layer) const;

  const std::vector<NamedLayer>& positions() const { return positions_; }
  // Distinct parameters with full names, in the order of ModelInfo::params.
  const std::vector<std::shared_ptr<Param>>& params() const { return params_; }
  const ModelInfo& info() const { return info_; }
  uint64_t seed() const { return seed_; }
  // Who holds the parameters' buffers; nullptr: nobody.
  std::shared_ptr<Trainer> trainer() const { return trainer_.lock(); }
  void set_trainer(std::weak_ptr<Trainer> trainer) { trainer_ = std::move(trainer); }
  // The distinct layer of each unit, for reports.
  std::string summary() const;

 private:
  std::vector<NamedLayer> positions_;
  std::vector<std::shared_ptr<Param>> params_;
  ModelInfo info_;
  uint64_t seed_;
  std::weak_ptr<Trainer> trainer_;
};

ZT_OBJECT(Model)

}  // namespace zt
