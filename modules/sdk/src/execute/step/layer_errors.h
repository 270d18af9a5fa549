// Says in which layer an error has happened.
#pragma once

#include <string>
#include <utility>

#include "zt/base/error.h"

namespace zt {

// Calls `body` and returns its result. Puts the layer's name, and the micro-batch unless it is -1, in front of its errors.
template <class Body>
auto with_layer_name(const std::string& name, const std::string& kind, int micro_batch, Body&& body) {
  const auto where = [&] {
    return fmt::format("layer '{}' ({}){}", name, kind, micro_batch < 0 ? "" : fmt::format(" in micro-batch {}", micro_batch));
  };
  return with_context(where, std::forward<Body>(body));
}

}  // namespace zt
