// The gradients with respect to fields of the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace zt {

// Which fields are wanted, and the sums of their gradients so far, by field and micro-batch. Only while Trainer::input_gradients
// runs are any wanted.
class InputGradients {
 public:
  void begin(std::vector<std::string> wanted) {
    wanted_ = std::move(wanted);
    sums_.clear();
  }
  // Returns the sums, each [samples, ...], and wants no more.
  std::map<std::pair<std::string, int>, at::Tensor> end() {
    wanted_.clear();
    return std::exchange(sums_, {});
  }
  bool wants(const std::string& field) const { return std::ranges::find(wanted_, field) != wanted_.end(); }
  void add(const std::string& field, int micro_batch, const at::Tensor& gradient) {
    at::Tensor& sum = sums_[{field, micro_batch}];
    sum = sum.defined() ? sum + gradient : gradient;
  }

 private:
  std::vector<std::string> wanted_;
  std::map<std::pair<std::string, int>, at::Tensor> sums_;
};

}  // namespace zt
