#include "norm.h"

#include <numeric>

#include "cpu/kernels.h"
#include "cpu/rows.h"
#include "cuda/device_call.h"
#include "cuda/device_norm.h"
#include "cuda/norm_cuda.h"
#include "function.h"
#include "layers.h"
#include "part.h"
#include "zt/base/options.h"

namespace zt::nn {

std::vector<std::string> norm_names() {
  return {"none", "layernorm", "rmsnorm"};
}

NormKind parse_norm(const std::string& name) {
  const auto names = norm_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) misuse("unknown norm '{}'{}", name, suggest(name, names));
  return static_cast<NormKind>(found - names.begin());
}

namespace {

using SinkFn = std::function<Context::Sink()>;

struct NormState {
  NormKind kind;
  double eps;
  std::shared_ptr<Param> weight;
  SinkFn weight_sink, bias_sink;  // bias_sink is empty if there is no bias
};

// Rows per block. The weight gradient is summed per block, then over the blocks in order, so the sum does not depend on the
// number of threads. Blocks are small, so that there is at least one per thread.
constexpr int64_t kBlock = 32;

// Returns the statistics of row `row`. `stats` is [2, rows], or [1, rows] for RMSNorm: 1 / deviation, then the mean.
template <class W>
kernels::NormStats<W> stats_at(const at::Tensor& stats, int64_t row) {
  W* reciprocal = static_cast<W*>(stats.data_ptr()) + row;
  return {stats.size(0) == 2 ? reciprocal + stats.size(1) : nullptr, reciprocal};
}

at::Tensor norm_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& stats, double eps) {
  const at::Tensor out = at::empty_like(x);
  const int64_t width = x.size(1);
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    const T *w = weight.const_data_ptr<T>(), *b = data_or_null<T>(bias), *in = x.const_data_ptr<T>();
    const auto found = stats_at<kernels::Wide<T>>(stats, 0);
    if (on_gpu(x, device::Norm<T>{out.data_ptr<T>(), found, in, w, b, eps, x.size(0), width})) return;
    for_rows(x.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::norm(out.data_ptr<T>() + begin * width, stats_at<kernels::Wide<T>>(stats, begin), in + begin * width, w, b, eps,
                    end - begin, width);
    });
  });
  return out;
}

// Gradients of a norm. Those of weight and bias are partial sums [blocks, hidden] in the wide dtype, to be summed over the
// blocks. On a GPU there is one block.
struct NormGradients {
  at::Tensor x, weight, bias;
};

// Writes the gradients. `beside` is another gradient of x that is added; may be undefined.
void norm_rows_backward(const NormGradients& out, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& beside, const at::Tensor& stats) {
  const int64_t rows = x.size(0), width = x.size(1);
  if (x.is_cuda()) return norm_backward_on_gpu(out.x, out.weight, out.bias, dy, x, weight, beside, stats);
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    const T* other = data_or_null<T>(beside);
    const auto part = [&](const at::Tensor& sums, int64_t block) {
      return sums.defined() ? sums.data_ptr<W>() + block * width : nullptr;
    };
    for_rows((rows + kBlock - 1) / kBlock, kBlock * width, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock, at = first * width;
        kernels::norm_backward(out.x.data_ptr<T>() + at, part(out.weight, block), part(out.bias, block),
                               dy.const_data_ptr<T>() + at, x.const_data_ptr<T>() + at, weight.const_data_ptr<T>(),
                               other ? other + at : nullptr, stats_at<const W>(stats, first), std::min(kBlock, rows - first),
                               width);
      }
    });
  });
}

// Returns `parts` [blocks, hidden] summed over the blocks, in ascending order.
at::Tensor sum_blocks(const at::Tensor& parts) {
  const int64_t blocks = parts.size(0), width = parts.size(1);
  std::vector<int64_t> ascending(blocks);
  std::iota(ascending.begin(), ascending.end(), 0);
  at::Tensor sum = at::zeros({width}, parts.options());
  for_dtype(parts, [&](auto zero) {
    using W = decltype(zero);
    for_rows(width, blocks, [&](int64_t begin, int64_t end) {
      kernels::add_rows(sum.data_ptr<W>() + begin, parts.const_data_ptr<W>() + begin, ascending.data(), blocks, width,
                        end - begin);
    });
  });
  return sum;
}

void add_to(const Context::Sink& sink, const at::Tensor& parts) {
  if (sink.view.defined()) sink.add(parts.is_cuda() ? parts[0] : sum_blocks(parts));
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  // Returns {the norm, x}. weight and bias are those of the state; they are arguments only to tell autograd that the result
  // depends on them.
  static variable_list forward(AutogradContext* node, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, NormState state) {
    const at::Tensor rows = as_rows(x);
    const int64_t kinds = state.kind == NormKind::layernorm ? 2 : 1;
    const at::Tensor stats = at::empty({kinds, rows.size(0)}, rows.options().dtype(wide_dtype(rows.scalar_type())));
    const at::Tensor out = norm_rows(rows, weight, value_or_none(bias), stats, state.eps);
    node->save_for_backward({rows, stats});
    node->set_materialize_grads(false);
    keep(node, std::move(state));
    return {in_shape_of(x, out), x};
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    if (!grads[0].defined()) return {grads[1], {}, {}, {}};
    const auto& state = kept<NormState>(node);
    const auto saved = node->get_saved_variables();
    const at::Tensor &x = saved[0], &stats = saved[1];
    const Context::Sink weight = state.weight_sink(), bias = state.bias_sink ? state.bias_sink() : Context::Sink{};
    const int64_t blocks = x.is_cuda() ? 1 : (x.size(0) + kBlock - 1) / kBlock;
    const auto parts = [&](const Context::Sink& sink) {
      return sink.view.defined() ? at::zeros({blocks, x.size(1)}, stats.options()) : at::Tensor();
    };
    const NormGradients out{at::empty_like(x), parts(weight), parts(bias)};
    const at::Tensor beside = grads[1].defined() ? as_rows(grads[1]) : at::Tensor();
    norm_rows_backward(out, as_rows(grads[0]), x, state.weight->get(), beside, stats);
    add_to(weight, out.weight);
    add_to(bias, out.bias);
    return {in_shape_of(grads[0], out.x), {}, {}, {}};
  }
};

}  // namespace

Norm::Norm(NormKind kind, int64_t hidden, double eps, bool bias, const std::string& prefix) : kind_(kind), eps_(eps) {
  if (kind != NormKind::none) weight_ = make_vector(prefix + "weight", hidden, init_ones(), "hidden");
  if (kind == NormKind::layernorm && bias) bias_ = make_vector(prefix + "bias", hidden, init_zeros(), "hidden");
}

at::Tensor Norm::run(const at::Tensor& x, Context& context) const {
  return fork(x, context).normed;
}

Norm::Fork Norm::fork(const at::Tensor& x, Context& context) const {
  if (kind_ == NormKind::none) return {x, x};
  if (x.dim() < 1 || x.size(-1) != weight_->shape[0]) {
    misuse("'{}' takes [..., {}], got {}", weight_->name, weight_->shape[0], describe(x));
  }
  NormState state{kind_, eps_, weight_, context.grad_sink(*weight_), bias_ ? context.grad_sink(*bias_) : SinkFn()};
  const variable_list both = NormFunction::apply(in_dtype_of(*weight_, x), weight_->get(),
                                                 bias_ ? std::optional(bias_->get()) : std::nullopt, std::move(state));
  return {both[0], both[1]};
}

Params Norm::params() const {
  Params all;
  if (weight_) all.push_back(weight_);
  if (bias_) all.push_back(bias_);
  return all;
}

namespace {

struct NormOptions {
  int64_t hidden = 0;
  double eps = 1e-5;
  bool bias = true;
};

}  // namespace

std::shared_ptr<Layer> make_layernorm(const Value& value) {
  static const auto kSchema = Schema<NormOptions>("nn.layernorm")
                                  .required("hidden", &NormOptions::hidden, "columns", at_least(1))
                                  .optional("eps", &NormOptions::eps, "added to the variance", at_least(0))
                                  .optional("bias", &NormOptions::bias, "add a bias");
  const auto options = kSchema.parse(value);
  return layer_of("layernorm", Norm(NormKind::layernorm, options.hidden, options.eps, options.bias, ""));
}

std::shared_ptr<Layer> make_rmsnorm(const Value& value) {
  static const auto kSchema = Schema<NormOptions>("nn.rmsnorm")
                                  .required("hidden", &NormOptions::hidden, "columns", at_least(1))
                                  .optional("eps", &NormOptions::eps, "added to the mean square", at_least(0));
  const auto options = kSchema.parse(value);
  return layer_of("rmsnorm", Norm(NormKind::rmsnorm, options.hidden, options.eps, false, ""));
}

}  // namespace zt::nn
