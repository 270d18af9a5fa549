#include "flat_optimizer.h"

#include <cmath>

#include "zt/base/cuda_launch.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::optim {

namespace {

Format format_of(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.scalar_type() == at::kBFloat16) return Format::bfloat16;
  return tensor.defined() && tensor.scalar_type() == at::kHalf ? Format::float16 : Format::as_param;
}

template <class T>
Arrays<T> arrays_of(const ShardBuffers& shard, const Segment& segment) {
  const auto at = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<T>() + segment.begin : nullptr; };
  const auto bytes_before = segment.begin * static_cast<int64_t>(shard.grad.element_size());
  return {.param = at(shard.param),
          .grad = static_cast<const std::byte*>(shard.grad.const_data_ptr()) + bytes_before,
          .first = at(shard.states[0]),
          .second = at(shard.states[1]),
          .copy = shard.copy.defined() ? static_cast<uint16_t*>(shard.copy.data_ptr()) + segment.begin : nullptr,
          .count = segment.end - segment.begin,
          .grad_format = format_of(shard.grad),
          .copy_format = format_of(shard.copy)};
}

template <class Rule, class T>
void update_on_gpu([[maybe_unused]] const Rule& rule, const ShardBuffers& shard, [[maybe_unused]] const Arrays<T>& arrays) {
#ifdef ZT_HAS_CUDA
  launch_on(shard.param.device(), [&](void* stream) { update_cuda(rule, arrays, stream); });
#else
  misuse("an optimizer got {}, but this build has no CUDA code: build ztoolkit where nvcc is found", describe(shard.param));
#endif
}

void check_segments(std::span<const Segment> segments, int64_t count) {
  int64_t last = 0;
  for (const Segment& segment : segments) {
    if (segment.begin < last || segment.end < segment.begin || segment.end > count) {
      misuse("segment [{}, {}) of parameter {}: a segment must start at {} or later and end within the shard's {} elements",
             segment.begin, segment.end, segment.param, last, count);
    }
    last = segment.end;
  }
}

}  // namespace

template <class Rule>
void update(const Rule& rule, const ShardBuffers& shard, const Segment& segment, Isa isa) {
  const auto arrays = arrays_of<typename Rule::Element>(shard, segment);
  if (is_for_host(shard.param)) update_cpu(rule, arrays, isa);
  else update_on_gpu(rule, shard, arrays);
}

#define ZT_INSTANTIATE(...) template void update<__VA_ARGS__>(const __VA_ARGS__&, const ShardBuffers&, const Segment&, Isa);
ZT_OPTIM_FOR_EACH_RULE(ZT_INSTANTIATE)

FlatOptimizer::FlatOptimizer(std::string kind, std::vector<std::string> state_names, const CommonOptions& options, Isa isa)
    : kind_(std::move(kind)),
      state_names_(std::move(state_names)),
      lr_(options.lr),
      groups_("optim." + kind_, options),
      isa_(isa) {}

ShardBuffers FlatOptimizer::checked(FlatState& state, const at::Tensor& grad) const {
  const at::Tensor& master = state.master;
  const bool ok = master.defined() && master.dim() == 1 && master.is_contiguous() && (is_for_host(master) || master.is_cuda()) &&
                  (master.scalar_type() == at::kFloat || master.scalar_type() == at::kDouble);
  if (!ok) misuse("{} updates a flat contiguous float32 or float64 shard on cpu or cuda, got {}", kind_, describe(master));
  const auto check = [&](const at::Tensor& tensor, const std::string& what, const std::vector<at::ScalarType>& dtypes) {
    if (!tensor.defined() || tensor.sizes() != master.sizes() || std::ranges::count(dtypes, tensor.scalar_type()) == 0 ||
        tensor.device() != master.device() || !tensor.is_contiguous()) {
      std::vector<std::string> names;
      for (const at::ScalarType dtype : dtypes) names.push_back(dtype_name(dtype));
      misuse("{}: {} must be contiguous and like the parameters, {}, of type {}, got {}", kind_, what, describe(master),
             fmt::join(names, " or "), describe(tensor));
    }
  };
  const bool is_float = master.scalar_type() == at::kFloat;
  if (is_float) check(grad, "the gradient", {at::kFloat, at::kBFloat16, at::kHalf});
  else check(grad, "the gradient", {at::kDouble});
  if (state.copy.defined()) {
    if (!is_float) misuse("{}: a 16-bit copy is made of float32 parameters, got {}: leave the copy out", kind_, describe(master));
    check(state.copy, "the copy", {at::kBFloat16, at::kHalf});
  }
  ShardBuffers shard{master, grad, state.copy, {}};
  for (size_t i = 0; i < state_names_.size(); ++i) {
    const auto found = state.state.find(state_names_[i]);
    if (found == state.state.end())
      misuse("{}: the shard has no state '{}': make a tensor of zeros for each state name", kind_, state_names_[i]);
    check(found->second, fmt::format("state '{}'", state_names_[i]), {master.scalar_type()});
    shard.states[i] = found->second;
  }
  return shard;
}

void FlatOptimizer::step(FlatState& state, const at::Tensor& grad, std::span<const Segment> segments,
                         const Scalars& scalars) const {
  const ShardBuffers shard = checked(state, grad);
  check_segments(segments, shard.param.numel());
  if (scalars.step < 1) misuse("{}: step counts updates from 1, got {}", kind_, scalars.step);
  if (!std::isfinite(scalars.lr) || !std::isfinite(scalars.grad_scale)) {
    misuse("{}: the learning rate ({}) and the gradient's scale ({}) must be finite", kind_, scalars.lr, scalars.grad_scale);
  }
  for (const Segment& segment : segments) groups_.at(segment.group);
  for (const Segment& segment : segments) {
    const ParamGroup& group = groups_.at(segment.group);
    if (segment.begin < segment.end) step_segment(shard, segment, group, scalars.lr * group.lr_scale, scalars);
  }
}

}  // namespace zt::optim
