// A layer with a statistic and a buffer.
#pragma once

#include <memory>

#include "zt/model/layer.h"

namespace zt::test {

// Returns h * (1 + level). The statistic "positive" counts the elements of h above 0, and all of them. After each step the buffer
// "level", a number, becomes half of itself plus a tenth of the share of elements above 0.
std::shared_ptr<Layer> make_tally();

}  // namespace zt::test
