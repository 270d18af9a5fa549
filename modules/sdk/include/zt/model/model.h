// A model: a list of layers. A position is one use of a layer in this list (a layer used twice has two positions).
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/box.h"
#include "zt/base/object.h"
#include "zt/base/option_texts.h"
#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/model/layer.h"

namespace zt {

// The output with index `output` of the position `position`.
struct Edge {
  int position = -1;
  int output = 0;
  bool operator==(const Edge&) const = default;
};

struct PositionInfo {
  std::string name;  // "blocks.0"; the second use of a layer has the first one's name
  std::string kind;
  int layer = 0;             // index among the distinct layers
  std::vector<Edge> inputs;  // the output that each input reads
  std::vector<Output> outputs;
  std::vector<LossInfo> losses = {};    // terms that it adds
  std::vector<StatInfo> stats = {};     // statistics that it adds to, by their names within the layer
  std::vector<int> units;               // units whose parameters the layer uses, ascending
  std::vector<std::string> axes;        // mesh axes along which its F, B and R communicate
  bool exchanges = false;               // these may return before the communication is done: an ExchangeLayer with axes
  TokenScope tokens = TokenScope::all;  // that the outputs of one token depend on, in mode generate
  bool has_update = false;              // the layer changes its buffers after each step, and at least one of them is trainable
  bool continues = false;               // as NamedLayer::continues
  std::vector<std::string> batch_axes = {};  // as LayerExtras::batch_axes
};

// A buffer that a layer changes itself, under the name "LAYER.NAME".
struct BufferInfo {
  std::string name;
  int layer = 0;            // index among the distinct layers
  std::string local_name;   // within the layer
  at::Tensor initial = {};  // as LayerBuffer::initial
  bool trainable = true;
};

// A statistic of the model: that of a layer, under the name "LAYER.NAME".
struct ModelStat {
  std::string name;
  int64_t size = 1;
  int layer = 0;  // index among the distinct layers
};

struct ParamInfo {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t room = 0;            // elements that it takes in the unit: the most that a rank holds
  int unit = 0;
  int64_t offset = 0;  // first element in the unit's flat layout, a multiple of 32
  bool trainable = true;
  bool is_matrix = true;
  std::vector<int> positions;  // positions that use it, ascending; more than one for tied weights
  std::vector<AxisPlacement> placements;
  std::vector<std::string> dims;  // names of the dims, "out" and "in"; empty: not given
  PackSpec pack = {};             // the format of what ranks hold

  int64_t numel() const;  // of the whole tensor
  bool is_packed() const { return pack.format != PackFormat::plain; }
  // Returns the elements of the unit's flat layout that the rank `coord` uses: those that it holds, or bytes if it is packed.
  int64_t flat_numel(const Coord& coord) const;
  // Returns the mesh axes along which each rank holds other elements, in the order of `placements`.
  std::vector<std::string> cut_axes() const;
  // Return the boxes of the rank `coord`, and the shape and the number of the elements that it holds (see boxes_of). The rest of
  // its room is padding at the end: zero, and never initialised, updated or shown.
  std::vector<Box> boxes(const Coord& coord) const { return boxes_of(shape, placements, coord); }
  std::vector<int64_t> local_shape(const Coord& coord) const { return local_shape_of(shape, placements, coord); }
  int64_t local_numel(const Coord& coord) const;
};

// All parameters of a unit have the same kind of placement on each axis and the same weight format, and all or none of them are
// trained, so what is frozen has no gradient and no optimizer state. A parameter that several layers share is a unit of its own.
struct UnitInfo {
  std::string name;            // the layer's name; further units of a layer are named after their first parameter
  std::vector<int> params;     // indices into ModelInfo::params, by offset
  int64_t numel = 0;           // elements of the flat layout: the end of the last parameter, with the padding between parameters
  std::vector<int> positions;  // positions that use its parameters, ascending
  bool trainable = true;       // as all of its parameters
  bool is_packed = false;      // elements of the flat layout are bytes, of packed parameters

  // Returns the type of the elements. `params`: that of a program's plain parameters.
  at::ScalarType element_type(at::ScalarType params) const { return is_packed ? at::kByte : params; }
};

// A description of a model for passes, the verifier and reports. Plain data, the same on every rank.
struct ModelInfo {
  std::vector<PositionInfo> positions;
  std::vector<ParamInfo> params;
  std::vector<UnitInfo> units;
  std::vector<LossInfo> losses = {};  // all terms of the objective, by name
  std::vector<ModelStat> stats = {};  // by layer, in the order of its io
  std::vector<BufferInfo> buffers = {};
  std::optional<TokenCut> tokens = {};       // how layers cut the tokens of samples
  std::vector<std::string> inner_axes = {};  // whose ranks have the same samples: tensor_axes() of layers, and that of `tokens`

  bool is_inner(const std::string& axis) const { return std::ranges::find(inner_axes, axis) != inner_axes.end(); }
  // Whether ranks communicate within forwards, where one that has failed cannot take part: in layers, or to add up what each has
  // found for some tokens of a sample.
  bool communicates_within_layers() const {
    return tokens ||
           std::ranges::any_of(positions, [](const PositionInfo& info) { return !info.axes.empty() && !info.exchanges; });
  }
};

// Returns the positions that read outputs of this one, in order.
std::vector<int> readers_of(const ModelInfo& model, int position);

// Returns a table of the model's units, for reports.
std::string summary(const ModelInfo& model);

struct NamedLayer {
  std::string name;
  std::shared_ptr<Layer> layer;
  bool continues = false;  // forms a block with the layer before it: a pipeline does not cut between them unless it is told to
};

// What a model computes. It holds no values and does not change once it is made, except that `set_trainable` and
// `Param::init` change what later programs and trainers begin with. Several trainers may share one, also on several threads
// unless a layer is written in Lua, which runs in the Lua state that made it.
class Model : public MadeFromOptions {
 public:
  // A layer may occur several times. A Param that several layers hold is tied: its name is that of the first of them. Sets the
  // full name of each Param. Throws Misuse if an input has no earlier output of its name, if two layers have the same name,
  // if a name is empty, if a loss term is summed over tokens in one layer and over samples in another, if a layer's buffer is
  // not as LayerBuffer says, or if layers do not fit the axes of others: if they cut tokens differently, beside a loss per sample
  // that does not add over tokens, beside a layer that needs whole samples or shares its work over the same axis; if a layer
  // reads all tokens of an output of which ranks have some, or the other way round; or if it sends rows along an axis whose ranks
  // have the same.
  Model(std::vector<NamedLayer> layers, uint64_t seed);

  // Makes parameters and layers' buffers trainable or freezes them: those whose name contains a match of the regular expression
  // (ECMAScript). A frozen buffer keeps its values. Forms the units anew. Returns the number of both. Programs that were made
  // before, and their trainers, do not change. Throws Misuse if no name matches.
  int set_trainable(const std::string& pattern, bool is_trainable);

  // Freezes matrices and lets trainers hold them in a packed format: those that may have it (Param::packing), except those whose
  // name contains a match of a regular expression in `keep`. Where a layer takes int8 at most, formats of 4 bits become int8.
  // Packed parameters begin as zeros. Returns their names. Programs that were made before, and their trainers, do not change.
  // Throws Misuse if a matrix or a rank's part of it is not made of whole groups, if a pattern matches no name, or if nothing is
  // packed.
  std::vector<std::string> pack(const PackSpec& spec, const std::vector<std::string>& keep);

  // The options from which a function such as nn.gpt made the model, as plain data, for records and exports; nil if not known.
  const Value& options() const { return options_; }
  void set_options(Value options) { options_ = std::move(options); }

  // Returns a new model: these layers, then `layer`. It keeps the options if `layer` has no parameters.
  std::shared_ptr<Model> append(NamedLayer layer) const;

  const std::vector<NamedLayer>& positions() const { return positions_; }
  // Distinct parameters with full names, in the order of ModelInfo::params.
  const Params& params() const { return params_; }
  const ModelInfo& info() const { return *info_; }
  // Later calls of set_trainable do not change what is returned.
  const std::shared_ptr<const ModelInfo>& shared_info() const { return info_; }
  // Returns shared_info() with everything frozen.
  std::shared_ptr<const ModelInfo> frozen_info() const;
  uint64_t seed() const { return seed_; }

 private:
  void mark_updates(ModelInfo& info) const;
  ModelInfo describe(const std::vector<bool>& trained);
  void describe_again(const ModelInfo& wanted);

  std::vector<NamedLayer> positions_;
  Params params_;
  std::shared_ptr<const ModelInfo> info_;
  uint64_t seed_;
  Value options_;
};

ZT_OBJECT(Model)

}  // namespace zt
