// The registry of kinds, for the kinds that the SDK itself registers.
#pragma once

#include "zt/program/kind.h"

namespace zt {

// As register_kind, but does not register the SDK's kinds first and does not check the name.
KindId add_kind(Kind kind);

}  // namespace zt
