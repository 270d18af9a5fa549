#include "tally.h"

#include <ATen/ATen.h>

#include "zt/model/layer_extras.h"

namespace zt::test {

namespace {

class Tally : public Layer, public LayerExtras {
 public:
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor positive = (in[0].detach() > 0).sum().to(at::kDouble);
    context.stat("positive", at::stack({positive, at::full_like(positive, static_cast<double>(in[0].numel()))}));
    context.stat("squares", in[0].detach().to(at::kDouble).square().sum());
    return {in[0] * (1 + extras_of(context).buffer("level").item<double>())};
  }
  Io io() const override { return {.stats = {{"positive", 2}, {"squares", 1}}}; }
  std::vector<LayerBuffer> buffers() const override { return {{"level", at::full({1}, 0.25, at::kDouble)}}; }
  bool has_update() const override { return true; }
  void update(const Stats& stats, const LayerBuffers& buffers) override {
    const at::Tensor& positive = stats.at("positive");
    at::Tensor(buffers.at("level")).mul_(0.5).add_(0.1 * positive[0].item<double>() / positive[1].item<double>());
  }
  std::string kind() const override { return "tally"; }
};

}  // namespace

std::shared_ptr<Layer> make_tally() {
  return std::make_shared<Tally>();
}

}  // namespace zt::test
