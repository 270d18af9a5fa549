#include "dropout.h"

#include "cpu/kernels.h"
#include "cuda/device_call.h"
#include "cuda/device_rows.h"
#include "function.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

// Number of random numbers per sample and dropout index. A sample must not have more elements than this.
constexpr int64_t kElementsPerIndex = int64_t{1} << 40;

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

DropoutMask::DropoutMask(double probability, const Context& context, int index)
    : probability_(probability),
      stream_(context.rng(Purpose::dropout)),
      first_sample_(context.first_sample()),
      first_element_(index * kElementsPerIndex) {}

void DropoutMask::check_elements(double of_sample) {
  if (of_sample > static_cast<double>(kElementsPerIndex))
    misuse(
        "dropout of {:.3g} elements of a sample: there are independent random numbers for 2^40. Use shorter samples, or no dropout",
        of_sample);
}

void DropoutMask::fill(uint8_t* kept, int64_t sample, int64_t first, int64_t count) const {
  constexpr int64_t kAtOnce = 1024;
  float numbers[kAtOnce];
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - i);
    stream_.uniform(first_sample_ + sample, first_element_ + first + i, {numbers, static_cast<size_t>(n)});
    kernels::not_below(kept + i, numbers, static_cast<float>(probability_), n);
  }
}

void DropoutMask::fill_lines(const at::Tensor& mask, const SampleLines& part) const {
  const int64_t samples = mask.dim() == 0 ? 1 : mask.size(0), pitch = mask.numel() / samples;
  auto* kept = mask.data_ptr<uint8_t>() + part.place;
  const auto first_sample = static_cast<uint64_t>(first_sample_), first = static_cast<uint64_t>(first_element_ + part.first);
  if (on_gpu(mask, device::KeepMask{kept, stream_.key(), first_sample, first, static_cast<float>(probability_), samples, pitch,
                                    part.lines, part.stride, part.width, part.pitch}))
    return;
  const int64_t of_sample = part.lines * part.width;
  for_elements(samples * of_sample, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t sample = i / of_sample, line = i % of_sample / part.width, j = i % part.width;
      const int64_t count = std::min(end - i, part.width - j);
      fill(kept + sample * pitch + line * part.pitch + j, sample, part.first + line * part.stride + j, count);
      i += count;
    }
  });
}

at::Tensor DropoutMask::mask(at::IntArrayRef shape, at::Device device, const std::vector<SampleLines>& parts) const {
  at::Tensor mask = at::empty(shape, at::TensorOptions(at::kByte).device(device));
  if (mask.is_meta() || mask.numel() == 0) return mask;
  for (const SampleLines& part : parts) {
    if (part.lines <= 0 || part.width <= 0) continue;
    check_elements(static_cast<double>(part.first + (part.lines - 1) * part.stride + part.width));
    fill_lines(mask, part);
  }
  return mask;
}

at::Tensor DropoutMask::mask(at::IntArrayRef shape, at::Device device, int64_t first) const {
  const int64_t of_sample = shape.empty() ? 1 : c10::multiply_integers(shape.slice(1));
  return mask(shape, device, {{first, 1, 0, of_sample, 0, 0}});
}

bool Dropout::has_some_tokens(const std::vector<int64_t>& shape, Context& context, std::optional<Share> tokens) const {
  const TokenPlaces& places = context.tokens();
  const size_t dims = shape.size();
  if (tokens) {
    if (dims < 2 || shape[1] != tokens->count)
      misuse("dropout of [{}]: dim 1 must be this rank's {} tokens", fmt::join(shape, ", "), tokens->count);
    return true;
  }
  if (places.of_rank.size() <= 1 || has_tokens_ == HasTokens::no) return false;
  bool fits = dims > (has_tokens_ == HasTokens::yes ? 1 : 2) && shape[1] == places.count();
  // Such as weights of attention [samples, heads, queries, keys], of as many heads as queries.
  if (has_tokens_ == HasTokens::unknown && dims > 3 && shape[2] == places.count()) fits = false;
  if (!fits)
    misuse(
        "dropout of [{}]: ranks have other tokens of the same samples, so it takes [samples, {} own tokens, ...]; give it the option "
        "tokens = false if x has no tokens, and tokens = true if dim 1 is the tokens although x does not look like it",
        fmt::join(shape, ", "), places.count());
  return true;
}

std::function<at::Tensor()> Dropout::draw(const DropoutMask& keep, const std::vector<int64_t>& shape, at::Device device,
                                          Context& context, std::optional<Share> tokens,
                                          std::optional<OwnColumns> columns) const {
  const TokenPlaces& places = context.tokens();
  const bool has_some = has_some_tokens(shape, context, tokens);
  if (!has_some && !columns) return [keep, shape, device] { return keep.mask(shape, device); };
  const std::vector<Share> rows = !has_some ? std::vector<Share>{{0, shape.size() > 1 ? shape[1] : 1}}
                                            : places_in(places.own(), tokens.value_or(Share{0, places.count()}));
  const int64_t width = shape.size() > 2 ? c10::multiply_integers(shape.begin() + 2, shape.end()) : 1;
  const OwnColumns of_row = columns.value_or(OwnColumns{{0, width}, width});
  std::vector<SampleLines> parts;
  int64_t place = 0;
  for (const Share& range : rows) {
    parts.push_back({range.begin * of_row.total + of_row.own.begin, range.count, of_row.total, of_row.own.count, place, width});
    place += range.count * width;
  }
  return [keep, shape, device, parts] { return keep.mask(shape, device, parts); };
}

at::Tensor Dropout::run(const at::Tensor& x, Context& context, const at::Tensor& residual, std::optional<Share> tokens,
                        std::optional<OwnColumns> columns) const {
  if (!is_active(context)) return residual.defined() ? residual + x : x;
  const DropoutMask keep(probability_, context, index_);
  return run_function<DropoutFunction>(x, maybe(residual),
                                       DropoutState{draw(keep, x.sizes().vec(), x.device(), context, tokens, columns), recompute_,
                                                    keep.scale(), residual.defined()});
}

}  // namespace zt::nn
