// Decoder-only language models. Family "gpt2" (Radford et al. 2019): pre-norm LayerNorm, learned positions, biases, tanh gelu,
// tied head; initial weights normal 0.02, divided by sqrt(2 layers) for the matmuls whose results are added to the residual
// stream. Family "llama" (Touvron et al. 2023): pre-norm RMSNorm, rotary positions, swiglu, no biases, untied head; initial
// weights normal 0.02.
#include <cmath>

#include "layers/block.h"
#include "layers/embedding.h"
#include "layers/layers.h"
#include "layers/part.h"
#include "losses/lm_logprobs.h"
#include "losses/lm_loss.h"
#include "losses/value_head.h"
#include "lua/gpt_blocks.h"
#include "lua/gpt_mlp.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

// What the last layer is: nn.lm_loss, nn.lm_logprobs or nn.value_head.
enum class GptHead : uint8_t { lm, logprobs, value };
constexpr auto words_of(GptHead) {
  return std::array{"lm", "logprobs", "value"};
}

struct GptOptions : HeadOptions {
  int64_t layers = 0, vocab = 0, seq = 0, ffn = 0, head_tile = 0, mlp_tile = 0;
  std::string family = "gpt2";
  // Set by the family unless given.
  std::optional<NormKind> norm;
  std::optional<Activation> activation;
  std::optional<std::string> position;
  std::optional<bool> bias, tied, scale_residual;
  Value window, context;               // of attention; `window` may be a list, and `context.method` a function, by block
  std::shared_ptr<lua::Callable> mlp;  // function(block); null means that all blocks are ordinary
  double eps = 1e-5, dropout = 0;
  GptHead head = GptHead::lm;
  bool loss = true, entropy = false, value_bias = false;
  double temperature = 1;
  LayerRecompute recompute = LayerRecompute::none;
  int64_t ignore_index = -100, seed = 0;
  std::optional<Value::Table> made_from;
};

bool is_llama(const GptOptions& o) {
  return o.family == "llama";
}

bool is_rotary(const GptOptions& o) {
  return o.position.value_or(is_llama(o) ? "rotary" : "learned") == "rotary";
}

// Whether the head reads labels.
bool has_labels(const GptOptions& o) {
  return o.head == GptHead::logprobs || (o.head == GptHead::lm && o.loss);
}

const Schema<GptOptions>& gpt_schema() {
  static const auto kSchema =
      stream_options(
          head_options(Schema<GptOptions>("nn.gpt").required("layers", &GptOptions::layers, "number of blocks", at_least(0)),
                       "rotary positions", is_rotary))
          .required("vocab", &GptOptions::vocab, "number of tokens", at_least(1))
          .optional("seq", &GptOptions::seq, "tokens of the longest sequence; needed for learned positions", at_least(0))
          .optional("family", &GptOptions::family, "decides the options that are not given", one_of({"gpt2", "llama"}))
          .optional("ffn", &GptOptions::ffn, "columns inside the MLP; 0: set by the family", at_least(0))
          .optional("norm", &GptOptions::norm, "norm before each branch and the head")
          .optional("position", &GptOptions::position, "kind of positions", one_of({"learned", "rotary", "none"}))
          .optional("activation", &GptOptions::activation, "activation of the MLPs")
          .optional("mlp_tile", &GptOptions::mlp_tile, "rows whose columns inside a block's MLP exist at the same time; 0: all",
                    at_least(0))
          .optional("mlp", &GptOptions::mlp, "function(block) that returns the layers instead of a block's MLP, or nil")
          .optional("window", &GptOptions::window,
                    "keys that a token attends to, its own and those before it; 0: all; or a list by block")
          .only_with("with causal = true", [](const GptOptions& o) { return o.causal; })
          .optional("context", &GptOptions::context,
                    "how the tokens of samples are cut over the ranks of a mesh axis; `method` may be a function(block)")
          .optional("bias", &GptOptions::bias, "add biases in blocks and norms")
          .optional("tied", &GptOptions::tied, "the head uses the weights of the embedding")
          .optional("scale_residual", &GptOptions::scale_residual,
                    "divide the initial weights of matmuls that end a branch by sqrt(2 layers)")
          .optional("eps", &GptOptions::eps, "eps of the norms", at_least(0))
          .only_with("with a norm", [](const GptOptions& o) { return o.norm != NormKind::none || o.qk_norm; })
          .optional("dropout", &GptOptions::dropout, "dropout of embedding, branches and attention weights", between(0, 0.999))
          .optional(
              "recompute", &GptOptions::recompute,
              "what the backward of a block computes again; selective: the results of norms, activations and the attention core")
          .optional("head", &GptOptions::head, "the last layer: lm_loss, lm_logprobs, or value_head")
          .optional("temperature", &GptOptions::temperature, "divides the logits of log-probabilities", between(1e-6, 1e6))
          .only_with("with head = \"logprobs\"", [](const GptOptions& o) { return o.head == GptHead::logprobs; })
          .optional("entropy", &GptOptions::entropy, "output the entropies beside the log-probabilities")
          .only_with("with head = \"logprobs\"", [](const GptOptions& o) { return o.head == GptHead::logprobs; })
          .optional("value_bias", &GptOptions::value_bias, "add a bias to the values")
          .only_with("with head = \"value\"", [](const GptOptions& o) { return o.head == GptHead::value; })
          .optional("loss", &GptOptions::loss, "end with cross-entropy; if false, output the logits, for a loss of your own")
          .only_with("with head = \"lm\"", [](const GptOptions& o) { return o.head == GptHead::lm; })
          .optional("ignore_index", &GptOptions::ignore_index, "label of tokens that do not count")
          .only_with("with loss = true, or head = \"logprobs\"", has_labels)
          .optional("head_tile", &GptOptions::head_tile, "rows whose logits exist at the same time in training; 0: all",
                    at_least(0))
          .only_with("with loss = true, or head = \"logprobs\"", has_labels)
          .optional("made_from", &GptOptions::made_from,
                    "the options to record instead of these, for functions that call nn.gpt with `mlp`")
          .optional("seed", &GptOptions::seed, "seed of the initial weights and of dropout");
  return kSchema;
}

// Sets the options that the script does not give, according to the family.
void fill_in(GptOptions& o) {
  const bool llama = is_llama(o);
  const auto otherwise = [](auto& option, auto value) {
    if (!option) option = value;
  };
  otherwise(o.norm, llama ? NormKind::rmsnorm : NormKind::layernorm);
  otherwise(o.position, llama ? "rotary" : "learned");
  otherwise(o.activation, llama ? Activation::swiglu : Activation::gelu_tanh);
  otherwise(o.bias, !llama);
  otherwise(o.tied, !llama);
  otherwise(o.scale_residual, !llama);
  // Llama: two thirds of 4 * hidden, rounded up to a multiple of 256.
  if (!o.ffn) o.ffn = llama ? (8 * o.hidden / 3 + 255) / 256 * 256 : 4 * o.hidden;
  if (*o.position == "learned" && o.seq == 0) misuse("nn.gpt: learned positions need option 'seq', the longest sequence");
}

BlockOptions block_options(const GptOptions& o) {
  const double residual_std = *o.scale_residual ? o.std / std::sqrt(2.0 * static_cast<double>(o.layers)) : o.std;
  BlockOptions block;
  static_cast<HeadOptions&>(block) = o;
  block.rotary = *o.position == "rotary";
  block.bias = *o.bias;
  block.residual_std = residual_std;
  block.qk_norm_eps = o.eps;
  block.ffn = o.ffn;
  block.mlp_tile = o.mlp_tile;
  block.activation = *o.activation;
  block.norm = *o.norm;
  block.eps = o.eps;
  block.dropout = o.dropout;
  block.recompute = o.recompute;
  return block;
}

// Adds block number `index`: one layer, or several if the script gives the layers of its MLP. Returns whether it is one.
bool add_block(std::vector<NamedLayer>& layers, int64_t index, const BlockOptions& options, lua::Callable* mlp) {
  const std::string name = fmt::format("blocks.{}", index), &path = gpt_schema().name();
  const auto inner = mlp ? layers_from(*mlp, index) : std::nullopt;
  if (!inner) {
    layers.push_back({name, layer_of("block", Block(options, path))});
    return true;
  }
  layers.push_back({name, std::make_shared<AttentionBlock>(options, path)});
  for (const NamedLayer& entry : *inner) layers.push_back({name + "." + entry.name, entry.layer, true});
  ResidualOptions residual;
  static_cast<TensorAxisOptions&>(residual) = options;
  residual.dropout = options.dropout;
  residual.recompute = options.recompute;
  layers.push_back({name + ".add", residual_layer(residual), true});
  return false;
}

// Throws Misuse if adapters are wanted in MLPs. To be called if no block has an MLP of nn.gpt with adapters.
void refuse_mlp_adapters(const GptOptions& o) {
  for (const std::string& target : kMlpTargets) {
    if (!o.lora || !o.lora->has_target(target)) continue;
    misuse(
        "nn.gpt.lora.targets: '{}' is a matrix of the MLPs of nn.gpt, and no block with adapters has one: the function `mlp` gives "
        "other layers. Give their nn.mlp or nn.linear the option `lora`. Experts cannot have adapters: the matrices of all experts "
        "are one tensor, whose rows are sorted by expert",
        target);
  }
}

// Freezes what layers change themselves, such as the biases of routers.
void freeze_buffers(Model& model) {
  std::vector<std::string> names;
  for (const BufferInfo& buffer : model.info().buffers) names.push_back(buffer.name);
  if (!names.empty()) model.set_trainable(fmt::format("^({})$", fmt::join(names, "|")), false);
}

// Returns the options that say what the model is, not where and how it runs.
Value without_layout(const Value& value) {
  Value::Table options = *value.get_if<Value::Table>();
  for (const char* layout :
       {"tensor", "tp_dtype", "overlap", "sequence_parallel", "context", "recompute", "head_tile", "mlp_tile"})
    options.erase(layout);
  return options;
}

// A value head is new, whatever the base.
void train_value(const Params& params) {
  for (const auto& param : params) param->trainable |= param->name.starts_with("value.");
}

// Sets the options that all heads of a language model have.
void set_head(LmHeadOptions& head, const GptOptions& o, const Embedding& embedding) {
  static_cast<TensorAxisOptions&>(head) = o;
  head.vocab = o.vocab;
  head.hidden = o.hidden;
  head.norm = *o.norm;
  head.eps = o.eps;
  head.norm_bias = *o.bias;
  head.ignore_index = o.ignore_index;
  head.std = o.std;
  head.tile = o.head_tile;
  head.reads_tokens = true;
  if (o.lora && o.lora->has_target(kHeadTarget)) head.lora = o.lora;
  if (*o.tied) head.tied = Object::of(embedding.weight());
}

std::shared_ptr<Layer> head_of(const GptOptions& o, const Embedding& embedding) {
  if (o.head == GptHead::value) {
    ValueHeadOptions value;
    static_cast<TensorAxisOptions&>(value) = o;
    value.hidden = o.hidden;
    value.norm = *o.norm;
    value.eps = o.eps;
    value.norm_bias = *o.bias;
    value.bias = o.value_bias;
    return value_head_layer(value);
  }
  if (o.head == GptHead::logprobs) {
    LmLogprobsOptions logprobs;
    set_head(logprobs, o, embedding);
    logprobs.temperature = o.temperature;
    logprobs.entropy = o.entropy;
    return lm_logprobs_layer(logprobs);
  }
  LmLossOptions loss;
  set_head(loss, o, embedding);
  loss.loss = o.loss;
  return std::make_shared<LmLoss>(loss);
}

std::shared_ptr<Model> gpt_of(GptOptions o, const Value& value) {
  fill_in(o);
  if (o.lora) o.lora = lora_of_model(*o.lora, o.layers);
  if (o.head == GptHead::value && o.lora && o.lora->has_target(kHeadTarget))
    misuse(
        "nn.gpt.lora.targets: with head = \"value\" the head is one row of weights, which is trained as a whole: leave 'head' out");
  EmbeddingOptions first;
  static_cast<TensorAxisOptions&>(first) = o;
  first.vocab = o.vocab;
  first.hidden = o.hidden;
  first.positions = *o.position == "learned" ? o.seq : 0;
  first.dropout = o.dropout;
  first.std = o.std;
  const auto embedding = std::make_shared<Embedding>(first);
  std::vector<NamedLayer> layers{{"embedding", embedding}};
  BlockOptions block = block_options(o);
  const std::vector<int64_t> windows = windows_of(o.window, o.layers);
  bool has_mlps = false, has_mlp_adapters = false;
  for (int64_t i = 0; i < o.layers; ++i) {
    block.window = windows[static_cast<size_t>(i)];
    block.context = context_of(o.context, i);
    block.lora = lora_of_block(o.lora, i);
    const bool has_mlp = add_block(layers, i, block, o.mlp.get());
    has_mlps |= has_mlp;
    has_mlp_adapters |= has_mlp && block.lora;
  }
  if (!has_mlp_adapters) refuse_mlp_adapters(o);
  if (o.mlp_tile > 0 && !has_mlps)
    misuse(
        "nn.gpt.mlp_tile has an effect only in blocks with an MLP of nn.gpt, and there are none: give `tile` to the layers of `mlp`");
  layers.push_back({"head", head_of(o, *embedding)});
  if (o.lora) {
    for (const NamedLayer& entry : layers) freeze_base(entry.layer->params());
    if (o.head == GptHead::value) train_value(layers.back().layer->params());
  }
  const auto model = std::make_shared<Model>(std::move(layers), static_cast<uint64_t>(o.seed));
  if (o.lora) freeze_buffers(*model);
  if (o.made_from) model->set_options(without_layout(*o.made_from));
  else if (!o.mlp) model->set_options(without_layout(value));
  return model;
}

}  // namespace

std::shared_ptr<Model> make_gpt(const Value& value) {
  return gpt_schema().make(value, [&](const GptOptions& o) { return gpt_of(o, value); });
}

}  // namespace zt::nn
