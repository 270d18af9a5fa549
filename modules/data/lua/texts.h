// The part of the module's binding that is about texts.
#pragma once

#include "zt/lua/state.h"

namespace zt::data {

void open_texts(lua::Module& module);

}  // namespace zt::data
