#include "dropout.h"

#include "cpu/kernels.h"
#include "cuda/device_call.h"
#include "cuda/device_rows.h"
#include "function.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// Number of random numbers per sample and dropout index. A sample must not have more elements than this.
constexpr int64_t kElementsPerIndex = int64_t{1} << 40;

at::Tensor scale_kept(const at::Tensor& x, const at::Tensor& keep, const at::Tensor& residual, double scale) {
  const at::Tensor out = at::empty_like(x);
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data_ptr<T>();
    const T *from = x.const_data_ptr<T>(), *more = data_or_null<T>(residual);
    const auto* kept = keep.const_data_ptr<uint8_t>();
    if (on_gpu(x, device::ScaleKept<T>{to, from, kept, more, scale, x.numel()})) return;
    for_elements(x.numel(), [&](int64_t begin, int64_t end) {
      kernels::scale_kept(to + begin, from + begin, kept + begin, more ? more + begin : nullptr, scale, end - begin);
    });
  });
  return out;
}

struct DropoutState {
  std::function<at::Tensor()> draw;  // the mask
  LayerRecompute recompute;
  double scale;
  bool has_residual;
};

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                            DropoutState state) {
    const at::Tensor mask = state.draw();
    const double scale = state.scale;
    node->save_for_backward({state.recompute == LayerRecompute::none ? mask : at::Tensor()});
    keep(node, std::move(state));
    return scale_kept(x.contiguous(), mask, residual ? residual->contiguous() : at::Tensor(), scale);
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& state = kept<DropoutState>(node);
    const at::Tensor saved = node->get_saved_variables()[0], mask = saved.defined() ? saved : state.draw();
    return {scale_kept(grads[0].contiguous(), mask, {}, state.scale), state.has_residual ? grads[0] : at::Tensor(), {}};
  }
};

}  // namespace

DropoutMask::DropoutMask(double probability, const Context& context, int index)
    : probability_(probability),
      stream_(context.rng(Purpose::dropout)),
      first_sample_(context.first_sample()),
      first_element_(index * kElementsPerIndex) {}

void DropoutMask::fill(uint8_t* kept, int64_t sample, int64_t first, int64_t count) const {
  constexpr int64_t kAtOnce = 1024;
  float numbers[kAtOnce];
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - i);
    stream_.uniform(first_sample_ + sample, first_element_ + first + i, {numbers, static_cast<size_t>(n)});
    kernels::not_below(kept + i, numbers, static_cast<float>(probability_), n);
  }
}

at::Tensor DropoutMask::mask(at::IntArrayRef shape, at::Device device, int64_t first) const {
  at::Tensor mask = at::empty(shape, at::TensorOptions(at::kByte).device(device));
  if (mask.is_meta() || mask.numel() == 0) return mask;
  const int64_t width = shape.empty() ? 1 : mask.numel() / shape[0];
  auto* kept = mask.data_ptr<uint8_t>();
  const auto key = stream_.key();
  const auto sample = static_cast<uint64_t>(first_sample_), element = static_cast<uint64_t>(first_element_ + first);
  const auto limit = static_cast<float>(probability_);
  if (on_gpu(mask, device::KeepMask{kept, key, sample, element, limit, mask.numel() / width, width})) return mask;
  for_elements(mask.numel(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t count = std::min(end - i, width - i % width);
      fill(kept + i, i / width, first + i % width, count);
      i += count;
    }
  });
  return mask;
}

at::Tensor DropoutMask::mask(at::IntArrayRef shape, at::Device device, const std::vector<Share>& elements) const {
  const at::Tensor all = at::empty(shape, at::TensorOptions(at::kByte).device(device));
  const at::Tensor samples = all.view({shape[0], all.numel() == 0 ? 0 : -1});
  int64_t at = 0;
  for (const Share& range : elements) {
    const at::Tensor place = samples.narrow(1, at, range.count);
    at += range.count;
    if (all.is_cuda()) {
      place.copy_(mask(place.sizes(), device, range.begin));
    } else if (all.is_cpu()) {
      for (int64_t sample = 0; sample < shape[0]; ++sample)
        fill(place.data_ptr<uint8_t>() + sample * place.stride(0), sample, range.begin, range.count);
    }
  }
  return all;
}

std::function<at::Tensor()> Dropout::mask(const DropoutMask& keep, const at::Tensor& x, Context& context,
                                          std::optional<Share> tokens, std::optional<OwnColumns> columns) const {
  const TokenPlaces& places = context.tokens();
  const int64_t held = places.count();
  const bool has_tokens = x.dim() > 1 && x.size(1) == (tokens ? tokens->count : held);
  const bool has_some = has_tokens && (tokens || places.of_rank.size() > 1);
  const auto shape = x.sizes().vec();
  if (!has_some && !columns) return [keep, shape, device = x.device()] { return keep.mask(shape, device); };
  const std::vector<Share> rows =
      !has_some ? std::vector<Share>{{0, x.dim() > 1 ? x.size(1) : 1}} : places_in(places.own(), tokens.value_or(Share{0, held}));
  const int64_t width = x.dim() > 2 ? x.numel() / std::max<int64_t>(1, x.size(0) * x.size(1)) : 1;
  std::vector<Share> elements;
  for (const Share& range : rows) {
    if (!columns) elements.push_back({range.begin * width, range.count * width});
    for (int64_t row = range.begin; columns && row < range.end(); ++row)
      elements.push_back({row * columns->total + columns->own.begin, columns->own.count});
  }
  return [keep, shape, device = x.device(), elements] { return keep.mask(shape, device, elements); };
}

at::Tensor Dropout::run(const at::Tensor& x, Context& context, const at::Tensor& residual, std::optional<Share> tokens,
                        std::optional<OwnColumns> columns) const {
  if (!is_active(context)) return residual.defined() ? residual + x : x;
  const DropoutMask keep(probability_, context, index_);
  return DropoutFunction::apply(
      x, maybe(residual), DropoutState{mask(keep, x, context, tokens, columns), recompute_, keep.scale(), residual.defined()});
}

}  // namespace zt::nn
