// Machines that are known by name.
#pragma once

#include <string>
#include <vector>

#include "zt/simulate/costs.h"

namespace zt {

const std::vector<Hardware>& known_hardware();

// Returns " 'h100'" for a message; nothing for a machine without a name.
inline std::string quoted(const std::string& name) {
  return name.empty() ? "" : " '" + name + "'";
}

}  // namespace zt
