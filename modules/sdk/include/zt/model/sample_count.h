// How a layer states the number of samples that losses per sample are divided by (Layer::count).
#pragma once

#include <cstdint>

namespace zt {

// Counts::samples of a layer is 0 where the layer says nothing: then each row of the batch is a sample. Where rows hold several
// sequences, a layer states their number; kNoSamples states that a micro-batch has none.
inline constexpr int64_t kNoSamples = -1;

}  // namespace zt
