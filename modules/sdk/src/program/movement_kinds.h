// The kinds that move data between memories of a rank.
#pragma once

#include "zt/program/kind.h"

namespace zt {

Kind fetch_kind();
Kind evict_kind();
Kind fetch_value_kind();
Kind evict_value_kind();

}  // namespace zt
