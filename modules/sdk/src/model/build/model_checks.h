// Checks of layers side by side, when a model is made. All throw Misuse.
#pragma once

#include <string>
#include <vector>

#include "zt/model/model.h"

namespace zt {

// Checks that the ranks have those tokens of each input that the reader takes.
void check_cuts(const Io& io, const PositionInfo& reader, const std::vector<PositionInfo>& positions);

// Checks that a layer sends no rows to ranks that have the same ones: the receiver would process each several times.
void check_exchange(const PositionInfo& position, const ModelInfo& model);

// Checks the layers of a model in which `cutter` cuts the tokens of samples.
void check_beside_cut(const std::vector<NamedLayer>& layers, const TokenCut& cut, const std::string& cutter);

}  // namespace zt
