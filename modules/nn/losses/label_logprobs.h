// The log-probabilities of labels by rows of logits, and the entropies of the rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "logit_function.h"
#include "softmax_loss.h"

namespace zt::nn {

// With z = logits / temperature and p = softmax(z), the results are log p[label] and, if wanted, the entropy -sum(p log p):
// [rows] each, float32 (float64 for float64 logits), 0 for labels that are ignore_index. Sums are in float64 in the order of the
// classes, as those from which an engine draws tokens, so equal logits give equal log-probabilities.
class LabelLogprobs final : public LogitFunction {
 public:
  // As SoftmaxLoss.
  LabelLogprobs(const at::Tensor& labels, int64_t ignore_index, double temperature, bool has_entropy,
                std::optional<ClassShare> share);

  void begin(int64_t rows, int64_t classes, const at::Tensor& like) override;
  void add(const at::Tensor& logits, int64_t first_row) override;
  std::vector<at::Tensor> total() override;
  void gradient(const at::Tensor& logits, const std::vector<at::Tensor>& of_results, int64_t first_row) const override;

 private:
  // Of a row, in the order in which ranks exchange them: the largest logit, with d = (logit - largest) / temperature the sums of
  // exp(d) and of exp(d) d, and the label's logit, or 0 if another rank has it.
  enum Number : int64_t { largest, sum, weighted, of_label, numbers };

  Share own_of(int64_t classes) const { return share_ ? share_->own : Share{0, classes}; }
  void join_shares();
  void add_on_gpu(const at::Tensor& logits, int64_t first_row);
  void gradient_on_gpu(const at::Tensor& logits, const at::Tensor& of_logprob, const at::Tensor& of_entropy,
                       int64_t first_row) const;

  at::Tensor given_, labels_;  // as given, and one after the other
  int64_t ignore_index_;
  double temperature_;
  bool has_entropy_;
  std::optional<ClassShare> share_;
  at::ScalarType dtype_ = at::kFloat;  // of the results
  at::Tensor numbers_;                 // [rows, numbers] float64, on the device of the logits
};

}  // namespace zt::nn
