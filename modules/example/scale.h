// A layer: a learned factor per channel.
#pragma once

#include "zt/model/layer.h"

namespace zt::example {

// Maps h, [..., channels], to h * weight of the same shape. weight: [channels], initialised to ones.
class Scale : public Layer {
 public:
  explicit Scale(int64_t channels);
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override { return {weight_}; }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "scale"; }

 private:
  std::shared_ptr<Param> weight_;
};

}  // namespace zt::example
