#include "attention.h"

#include "attention/attention_cached.h"
#include "context/context_attention.h"
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
    : options_(options), shape_(checked_shape(options, path)), tensor_(options, path), context_(options.context, path) {
  const Bias bias = options.bias ? Bias::yes : Bias::no;
  const Bias qkv_bias = options.qkv_bias.value_or(options.bias) ? Bias::yes : Bias::no;
  qkv_ = make_affine(prefix + "qkv.", options.hidden, shape_.columns(), qkv_bias, init_normal(0, options.std));
  out_ = make_affine(prefix + "out.", shape_.heads * shape_.head_dim, options.hidden, bias, init_normal(0, options.residual_std));
  const int64_t queries = shape_.heads * shape_.head_dim, keys = shape_.kv_heads * shape_.head_dim;
  qkv_.lora = make_lora(*qkv_.weight, prefix + "qkv.", options.lora,
                        {{"q", 0, queries}, {"k", queries, keys}, {"v", queries + keys, keys}, {"qkv", 0, shape_.columns()}},
                        LoraInput::qkv);
  out_.lora = make_lora(*out_.weight, prefix + "out.", options.lora, {{"out", 0, options.hidden}}, LoraInput::out);
  if (options.qk_norm) head_norm_.emplace(shape_.head_dim, options.qk_norm_eps, prefix);
  if (options.rotary) rotary_ = Rotary::shared(shape_.head_dim, options.rope_base, options.rope_scaling);
  tensor_.check_enough(shape_.heads, "heads", path);
  check_context(path);
  cut();
}

void Attention::check_context(const std::string& path) const {
  if (!context_.is_cut()) return;
  if (tensor_.is_cut() && tensor_.name() == context_.name())
    misuse("{}: the heads and the tokens are both cut over axis '{}': give two axes", path, tensor_.name());
  if (context_.method() == ContextMethod::ulysses && shape_.heads / tensor_.ranks() < context_.ranks())
    misuse(
        "{}: with method = \"ulysses\", the {} ranks of axis '{}' cut the heads of a rank, {}: give more heads, or method = \"ring\"",
        path, context_.ranks(), context_.name(), shape_.heads / tensor_.ranks());
}

// Cuts by query heads. The norms of heads are whole: each rank has other heads.
void Attention::cut() {
  const int64_t dim = shape_.head_dim, queries = shape_.heads * dim, keys = shape_.kv_heads * dim;
  has_own_keys_ = shape_.heads == shape_.kv_heads || shape_.kv_heads % tensor_.ranks() == 0;
  const CutGroup of_keys{keys, has_own_keys_ ? dim : 1};
  tensor_.cut_rows(qkv_, {{queries, dim}, of_keys, of_keys});
  tensor_.cut_columns(out_, {{queries, dim}});
  if (head_norm_) tensor_.sum(head_norm_->params());
  if (out_.bias) tensor_.sum_over_stream({out_.bias});
}

Attention::RankHeads Attention::heads_of_rank(int rank) const {
  const int64_t dim = shape_.head_dim;
  const Share queries = share_of(shape_.heads, tensor_.ranks(), rank);
  if (has_own_keys_) {
    const Share keys = share_of(shape_.kv_heads, tensor_.ranks(), rank);
    return {queries, keys, {queries.count, keys.count, dim}};
  }
  const int64_t group = shape_.group_size(), first = queries.begin / group, end = (queries.end() - 1) / group + 1;
  return {queries, {first, end - first}, {queries.count, end - first, dim, group, queries.begin - first * group}};
}

std::optional<KvShape> Attention::kv_shape(const Coord& coord) const {
  if (token_scope() != TokenScope::cached) return {};
  return KvShape{heads_of_rank(tensor_.is_cut() ? coord[tensor_.name()] : 0).keys.count, shape_.head_dim};
}

// Returns this rank's queries with the key heads and value heads that they need, from those and some columns of all keys and
// values.
at::Tensor Attention::with_all_keys(const at::Tensor& qkv, const RankHeads& heads, Context& context) const {
  const int64_t dim = shape_.head_dim, queries = heads.queries.count * dim, columns = (qkv.size(2) - queries) / 2;
  const at::Tensor own = qkv.narrow(2, queries, 2 * columns).view({qkv.size(0), qkv.size(1), 2, columns});
  const at::Tensor all = tensor_.gather_parts(own, 3, shape_.kv_heads * dim, context);
  return at::cat({qkv.narrow(2, 0, queries), all.narrow(3, heads.keys.begin * dim, heads.keys.count * dim).flatten(2)}, 2);
}

// Returns this rank's queries, keys and values, and fills in which heads they are.
at::Tensor Attention::project(const MatmulInput& x, AttentionInputs& inputs, Context& context) const {
  inputs.shape = shape_;
  at::Tensor qkv = linear_into_parts(x, qkv_, tensor_, context);
  if (!tensor_.is_cut()) return qkv;
  const RankHeads heads = heads_of_rank(context.rank_along(tensor_.name()));
  inputs.first_head = heads.queries.begin;
  inputs.shape = heads.shape;
  return has_own_keys_ ? qkv : with_all_keys(qkv, heads, context);
}

// The rows of several sequences, of which each sees its own keys only.
at::Tensor Attention::attend_cached(const at::Tensor& qkv, const AttentionInputs& inputs, KvCache& cache,
                                    Context& context) const {
  if (inputs.segments.defined())
    misuse("'{}' reads keys and values from a cache, so the batch cannot have segments: give each of them as a sequence",
           qkv_.weight->name);
  if (inputs.angles) rotate_heads(qkv, *inputs.angles, inputs.shape.heads + inputs.shape.kv_heads, Turn::forward);
  const CachedRows rows{cache.layer(context.position), cache.block(), cache.sequences(context.micro_batch)};
  return qkv.is_cpu() ? attention_cached(qkv, inputs, rows) : attention_cached_by_aten(qkv, inputs, rows);
}

bool Attention::needs_other_tokens(Context& context) const {
  return context.mode != Mode::generate && context.tokens().of_rank.size() > 1;
}

MatmulInput Attention::attend(const at::Tensor& projected, AttentionInputs inputs, Context& context) const {
  const at::Tensor qkv = head_norm_ ? head_norm_->run(projected, inputs.shape, context) : projected;
  if (KvCache* cache = context.kv_cache()) return attend_cached(qkv, inputs, *cache, context);
  if (!needs_other_tokens(context)) return attention_core(qkv, std::move(inputs));
  if (!context_.is_cut())
    misuse("'{}' would miss the tokens of other ranks: the tokens of samples are cut, and this layer has no option 'context'",
           qkv_.weight->name);
  return context_attention(qkv, std::move(inputs), context_, context);
}

// Keeps only the projection. Where ranks need each other's tokens, it would be communication that is done twice.
MatmulInput Attention::attend_again(const at::Tensor& projected, AttentionInputs inputs, Context& context) const {
  if (options_.recompute == LayerRecompute::none || needs_other_tokens(context))
    return attend(projected, std::move(inputs), context);
  at::Tensor kept = projected;
  if (!head_norm_ && inputs.angles) {
    kept = rotate_joined(projected, inputs);  // in place
    inputs.angles.reset();
  }
  return recomputed(
      kept, [this, inputs = std::move(inputs), &context](const at::Tensor& qkv) { return attend(qkv, inputs, context).value; });
}

at::Tensor Attention::run(const MatmulInput& input, Context& context, const at::Tensor& residual) const {
  const at::Tensor& x = input.value;
  if (x.dim() != 3) misuse("'{}' takes [samples, seq, {}], got {}", qkv_.weight->name, options_.hidden, describe(x));
  AttentionInputs inputs;
  const at::Tensor qkv = project(input, inputs, context);
  const int64_t samples = qkv.size(0), seq = qkv.size(1);
  inputs.sees = {options_.causal, options_.window};
  if (context.has_batch("segments")) inputs.segments = token_field("segments", context, samples, seq);
  if (rotary_) {
    const at::Device positions_at = x.is_meta() ? x.device() : at::kCPU;
    inputs.angles = rotary_->angles(positions_of(context, samples, seq, positions_at), x.scalar_type(), x.device());
  }
  if (options_.dropout > 0 && context.mode == Mode::train) {
    const auto total = static_cast<double>(std::max(seq, context.tokens().total));
    DropoutMask::check_elements(static_cast<double>(shape_.heads) * total * total);
    inputs.dropout.emplace(options_.dropout, context, 0);
  }
  return linear_of_parts(attend_again(qkv, std::move(inputs), context), out_, tensor_, context, residual);
}

void Attention::check_batch(const BatchField& batch) const {
  check_beside_tokens("segments", batch);
  if (!rotary_) return;
  check_beside_tokens("positions", batch);
  const at::Tensor positions = batch("positions");
  if (positions.defined() && positions.numel() > 0) check_not_negative(positions.min().item<int64_t>());
}

std::shared_ptr<Layer> make_attention(const Value& value) {
  static const auto kSchema =
      attention_options(Schema<AttentionOptions>("nn.attention"), "dropout probability of the attention weights");
  return kSchema.make(value, [](const AttentionOptions& options) {
    return make_with_lora(options, kSchema.name(), kAttentionTargets, kUsualTargets,
                          [](const auto& o) { return layer_of("attention", Attention(o, "", kSchema.name())); });
  });
}

}  // namespace zt::nn
