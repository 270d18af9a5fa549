// Machines that are known by name.
#pragma once

#include <vector>

#include "zt/simulate/costs.h"

namespace zt {

const std::vector<Hardware>& known_hardware();

}  // namespace zt
