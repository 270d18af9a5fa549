// The part of the module's binding that is about streams.
#pragma once

#include "zt/lua/state.h"

namespace zt::data {

void open_streams(lua::Module& module);

}  // namespace zt::data
