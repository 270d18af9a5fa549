// Reads the options of nn.layer that are tables: parameters and how they are cut, axes, inputs and outputs.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Returns the names of the axes of several ranks. Throws Misuse for a joined axis. `option`: its name, for messages.
std::vector<std::string> read_axes(const char* option, const std::vector<std::shared_ptr<Axis>>& axes);
// Returns no cut for an axis of one rank. Adds the axis to `named`, and sets `fields` to the option's. Throws Misuse for a joined
// axis.
std::optional<TokenCut> read_token_cut(const Value& value, std::set<std::string>& named, std::vector<std::string>& fields);
// `axes`: those along which the layer communicates. Throws Misuse for a cut along another, or one that does not fit the values.
std::shared_ptr<Param> read_param(const std::string& name, const Value& value, const std::set<std::string>& axes);
Io read_io(const Value::Table& table);

}  // namespace zt::nn
