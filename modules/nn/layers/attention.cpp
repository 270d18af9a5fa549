#include "attention.h"

#include "layers.h"
#include "part.h"
#include "parts/positions.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

AttentionShape checked_shape(const AttentionOptions& options, const std::string& path) {
  AttentionShape shape{options.heads, options.kv_heads ? options.kv_heads : options.heads, options.head_dim};
  if (!shape.head_dim && options.hidden % options.heads != 0) {
    misuse("{}: hidden = {} cannot be divided into {} heads evenly: change one, or give head_dim", path, options.hidden,
           options.heads);
  }
  if (!shape.head_dim) shape.head_dim = options.hidden / options.heads;
  if (shape.heads % shape.kv_heads != 0) {
    misuse("{}: {} heads cannot share {} kv_heads evenly: make kv_heads a divisor of heads", path, shape.heads, shape.kv_heads);
  }
  if (options.rotary && shape.head_dim % 2 != 0) {
    misuse("{}: rotary positions rotate pairs of elements and need an even head_dim, got {}", path, shape.head_dim);
  }
  return shape;
}

}  // namespace

Attention::Attention(AttentionOptions options, const std::string& prefix, const std::string& path)
    : options_(options), shape_(checked_shape(options, path)) {
  const Bias bias = options.bias ? Bias::yes : Bias::no;
  qkv_ = make_affine(prefix + "qkv.", options.hidden, shape_.columns(), bias, init_normal(0, options.std));
  out_ = make_affine(prefix + "out.", shape_.heads * shape_.head_dim, options.hidden, bias, init_normal(0, options.residual_std));
  if (options.qk_norm) head_norm_.emplace(shape_, options.qk_norm_eps, prefix);
  if (options.rotary) rotary_ = std::make_shared<Rotary>(shape_.head_dim, options.rope_base);
}

at::Tensor Attention::run(const at::Tensor& x, Context& context, const at::Tensor& residual) const {
  if (x.dim() != 3) misuse("'{}' takes [samples, seq, {}], got {}", qkv_.weight->name, options_.hidden, describe(x));
  const int64_t samples = x.size(0), seq = x.size(1);
  at::Tensor qkv = linear(x, qkv_, context);
  if (head_norm_) qkv = head_norm_->run(qkv, context);
  AttentionInputs inputs;
  inputs.shape = shape_;
  inputs.sees.causal = options_.causal;
  if (context.has_batch("segments")) inputs.segments = token_field("segments", context, samples, seq);
  if (rotary_) {
    const at::Device positions_at = x.is_meta() ? x.device() : at::kCPU;
    inputs.angles = rotary_->angles(positions_of(context, samples, seq, positions_at), x.scalar_type(), x.device());
  }
  if (options_.dropout > 0 && context.mode == Mode::train) inputs.dropout.emplace(options_.dropout, context, 0);
  return linear(attention_core(qkv, std::move(inputs)), out_, context, residual);
}

std::shared_ptr<Layer> make_attention(const Value& value) {
  static const auto kSchema =
      attention_options(Schema<AttentionOptions>("nn.attention"), "dropout probability of the attention weights");
  return kSchema.make(value, [](const AttentionOptions& o) { return layer_of("attention", Attention(o, "", kSchema.name())); });
}

}  // namespace zt::nn
