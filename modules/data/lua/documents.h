// The part of the module's binding that writes documents with answers.
#pragma once

#include "zt/lua/state.h"

namespace zt::data {

void open_document_files(lua::Module& module);

}  // namespace zt::data
