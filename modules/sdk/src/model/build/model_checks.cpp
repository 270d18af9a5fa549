#include "model_checks.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/model/layer_extras.h"

namespace zt {

void check_cuts(const Io& io, const PositionInfo& reader, const std::vector<PositionInfo>& positions) {
  for (size_t i = 0; i < io.inputs.size(); ++i) {
    const PositionInfo& source = positions[reader.inputs[i].position];
    const std::string& given = source.outputs[reader.inputs[i].output].cut_over;
    const auto found = io.cut_inputs.find(io.inputs[i]);
    const std::string taken = found == io.cut_inputs.end() ? "" : found->second;
    if (given == taken) continue;
    const auto words = [](const std::string& axis) { return axis.empty() ? "all tokens" : "its tokens along '" + axis + "'"; };
    misuse(
        "'{}' ({}) outputs to each rank {} of '{}', and '{}' ({}), which reads it, takes {}: give all layers of the residual stream "
        "the same sequence_parallel and tensor; layers that need not know of it stand between nn.attention_block and nn.residual",
        source.name, source.kind, words(given), io.inputs[i], reader.name, reader.kind, words(taken));
  }
}

void check_exchange(const PositionInfo& position, const ModelInfo& model) {
  if (!position.exchanges) return;
  for (const std::string& axis : position.axes) {
    if (!model.is_inner(axis) || (model.tokens && model.tokens->axis == axis)) continue;
    misuse(
        "'{}' ({}) sends rows to the ranks along '{}', over which another layer shares its work, so that they have the same rows: "
        "give it another axis (experts: another `axis`, and `tensor` for this one)",
        position.name, position.kind, axis);
  }
}

void check_beside_cut(const std::vector<NamedLayer>& layers, const TokenCut& cut, const std::string& cutter) {
  for (const NamedLayer& entry : layers) {
    if (!entry.layer) continue;
    const LayerExtras& extras = extras_of(*std::as_const(entry.layer));
    const auto shared = extras.tensor_axes();
    if (std::ranges::find(shared, cut.axis) != shared.end())
      misuse(
          "the layer '{}' ({}) shares its work over the ranks of '{}', along which '{}' cuts the tokens of samples: each rank would "
          "add parts of other tokens; give `tensor` and `context` different axes of the mesh",
          entry.name, entry.layer->kind(), cut.axis, cutter);
    if (extras.needs_whole_samples())
      misuse(
          "the layer '{}' ({}) would miss the tokens of other ranks: '{}' cuts the tokens of samples along '{}', and this layer, as it "
          "is, needs all of a sample: give it the same option 'context', and leave out what does not go with that",
          entry.name, entry.layer->kind(), cutter, cut.axis);
  }
}

}  // namespace zt
