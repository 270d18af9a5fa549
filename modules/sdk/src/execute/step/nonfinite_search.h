// The search for what is not finite, in a step that is repeated for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "zt/base/error.h"

namespace zt {

// Returns the index in dim 0 of the first number that is not finite; -1 if all are finite. A tensor without dims has the index 0.
int64_t first_nonfinite_row(const at::Tensor& values);

class NonfiniteSearch {
 public:
  void begin() { is_on_ = true; }
  void end() { is_on_ = false; }
  // Notes the first values that are not finite; see ContextExtras::watch.
  void look_at(const std::string& name, const std::string& layer, const at::Tensor& values) {
    if (!is_on_ || !found_.empty()) return;
    if (const int64_t sample = first_nonfinite_row(values); sample >= 0)
      found_ = fmt::format("the {} of layer '{}' in sample {}", name, layer, sample);
  }
  // Returns them in words, and forgets them; empty: there are none.
  std::string take() { return std::exchange(found_, {}); }

 private:
  bool is_on_ = false;
  std::string found_;
};

}  // namespace zt
