// A function of rows of logits, such as the cross-entropy, whose logits may exist for some rows at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace zt::nn {

// Call begin, then add for the rows in order, then total, once each; then gradient for the rows in any order.
// Threads: the rank's thread only.
class LogitFunction {
 public:
  virtual ~LogitFunction();

  // Throws Misuse for labels that do not fit `rows` rows of logits [rows, classes of this rank]. `like`: of the dtype and device
  // of the logits.
  virtual void begin(int64_t rows, int64_t classes, const at::Tensor& like) = 0;
  // Reads the logits of the rows from `first_row` on, contiguous.
  virtual void add(const at::Tensor& logits, int64_t first_row) = 0;
  // Returns the results. Where ranks share the classes, they exchange numbers per row here.
  virtual std::vector<at::Tensor> total() = 0;
  // Overwrites such logits with their gradient, from those of the results: undefined ones count as zeros, not all are undefined.
  virtual void gradient(const at::Tensor& logits, const std::vector<at::Tensor>& of_results, int64_t first_row) const = 0;
};

}  // namespace zt::nn
