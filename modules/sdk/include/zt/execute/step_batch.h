// The batch of a step, on one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace zt {

// Fields by name, each [samples, ...].
using Batch = std::map<std::string, at::Tensor>;

// A rank's part of a global batch: one batch, which is cut evenly along the samples, or a list of micro-batches, which may differ
// in shape.
class StepBatch {
 public:
  StepBatch(Batch whole) : given_(std::move(whole)) {}                               // NOLINT: a batch is what most callers have
  StepBatch(std::vector<Batch> micro_batches) : given_(std::move(micro_batches)) {}  // NOLINT
  // Returns what stands for a batch that a script gave wrongly. Its use fails with `why`, so that all ranks learn of it.
  static StepBatch wrong(std::string why) { return StepBatch(std::move(why)); }

  // Returns the micro-batches. Throws Misuse if there are other than `count` in a list, if `count` does not divide the samples of
  // one batch, or if a micro-batch is empty or its fields have other names or numbers of samples.
  std::vector<Batch> cut(int count) const;

 private:
  explicit StepBatch(std::string why) : given_(std::move(why)) {}

  std::variant<Batch, std::vector<Batch>, std::string> given_;
};

// Throws Misuse unless all fields are [samples, ...] with one number of samples above 0.
void check_batch(const Batch& batch);

// Return the number of samples.
int64_t samples_of(const Batch& batch);
int64_t samples_of(const std::vector<Batch>& micro_batches);

// Returns tensors of the same shapes on device meta.
std::vector<Batch> on_meta(const std::vector<Batch>& micro_batches);
// Return whether all fields have the same names and shapes.
bool has_shapes_of(const Batch& a, const Batch& b);
bool has_shapes_of(const std::vector<Batch>& a, const std::vector<Batch>& b);

}  // namespace zt
