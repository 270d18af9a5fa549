// A part is a building block of layers: parameters and a function of one tensor. nn.block combines several parts in one layer.
// PartLayer makes a layer of one part.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parts/params.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

// P has `at::Tensor run(const at::Tensor& x, Context&) const` and `Params params() const`. If its matrices may be cut, it has
// `const TensorAxis& tensor() const`; if it works on a part of the tokens, `const ContextAxis& context_axis() const` and
// `std::string load() const`. If it reads other tokens, it has `token_scope() const` and `kv_shape(coord) const`, as Layer. If it
// reads fields of the batch, it may have `void check_batch(batch) const`, as LayerExtras.
template <class P>
class PartLayer final : public Layer, public LayerExtras {
 public:
  PartLayer(std::string kind, P part) : kind_(std::move(kind)), part_(std::move(part)) {}
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override { return {part_.run(in[0], context)}; }
  Params params() const override { return part_.params(); }
  std::vector<std::string> axes() const override {
    if constexpr (kHasContext) return part_.context_axis().with(tensor_axes());
    else return tensor_axes();
  }
  std::vector<std::string> tensor_axes() const override {
    if constexpr (requires { part_.tensor(); }) return part_.tensor().axes();
    else return {};
  }
  Io io() const override {
    Io io;
    if constexpr (requires { part_.tensor(); }) io.cut_inputs["h"] = io.outputs.front().cut_over = part_.tensor().stream_axis();
    return io;
  }
  std::optional<TokenCut> token_cut() const override {
    if constexpr (kHasContext) return part_.context_axis().token_cut();
    else return {};
  }
  bool needs_whole_samples() const override {
    if constexpr (kHasContext) return !part_.context_axis().is_cut();
    else return false;
  }
  TokenScope token_scope() const override {
    if constexpr (requires { part_.token_scope(); }) return part_.token_scope();
    else return TokenScope::separate;
  }
  std::optional<KvShape> kv_shape(const Coord& coord) const override {
    if constexpr (requires { part_.kv_shape(coord); }) return part_.kv_shape(coord);
    else return {};
  }
  void check_batch(const BatchField& batch, Mode /*mode*/) const override {
    if constexpr (requires { part_.check_batch(batch); }) part_.check_batch(batch);
  }
  std::string assumption() const override {
    if constexpr (kHasContext) return part_.load();
    else return {};
  }
  std::string kind() const override { return kind_; }

 private:
  static constexpr bool kHasContext = requires(const P& part) { part.context_axis(); };

  std::string kind_;
  P part_;
};

template <class P>
std::shared_ptr<Layer> layer_of(std::string kind, P part) {
  return std::make_shared<PartLayer<P>>(std::move(kind), std::move(part));
}

}  // namespace zt::nn
