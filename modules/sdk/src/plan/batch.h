// Checks of a batch, and a batch without memory.
#pragma once

#include "zt/execute/executor.h"

namespace zt {

// Throws Misuse unless all fields are [samples, ...] with one number of samples above 0, which `parts` divides.
void check_batch(const Batch& batch, int parts);

// Returns the fields of `times` such batches, joined along the samples, on device meta.
Batch batch_on_meta(const Batch& batch, int times);

// Returns whether `fields` has the shapes that batch_on_meta(batch, times) would have. Allocates nothing.
bool has_shapes_of(const Batch& fields, const Batch& batch, int times);

}  // namespace zt
