#include "lm_head.h"

#include "layers/embedding.h"
#include "logit_places.h"
#include "parts/function.h"
#include "parts/positions.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

constexpr const char* kLogitsOf = "logits_of";

// Returns the parameter that the option `tied` names; null for nil.
std::shared_ptr<Param> tied_param(const Value& tied, const std::string& path) {
  if (tied.is_nil()) return nullptr;
  const auto* object = tied.get_if<Object>();
  if (object && object->as<Param>()) return object->as<Param>();
  const auto layer = object ? std::dynamic_pointer_cast<Embedding>(object->as<Layer>()) : nullptr;
  if (!layer) wrong_type(path + ".tied", "an nn.embedding layer or a Param", tied);
  return layer->weight();
}

}  // namespace

LmHead::LmHead(const LmHeadOptions& options, const std::string& path)
    : path_(path),
      norm_(options.norm, options.hidden, options.eps, options.norm_bias, "norm."),
      tensor_(options, path),
      ignore_index_(options.ignore_index),
      tile_(options.tile),
      reads_tokens_(options.reads_tokens) {
  head_ = make_affine("", options.hidden, options.vocab, options.bias ? Bias::yes : Bias::no, init_normal(0, options.std));
  head_.weight->packing = Packing::up_to_int8;  // its errors go to the logits directly
  head_.lora = make_lora(*head_.weight, "", options.lora, {{kHeadTarget, 0, options.vocab}}, LoraInput::head);
  tensor_.check_enough(options.vocab, "classes", path);
  tensor_.cut_rows(head_, {{options.vocab, 1}});
  tensor_.sum_over_stream(norm_.params());
  const auto tied = tied_param(options.tied, path);
  if (!tied) return;
  if (tied->shape != head_.weight->shape) {
    misuse("{}: a tied head needs weights [vocab, hidden] = [{}, {}], but '{}' is [{}]", path, options.vocab, options.hidden,
           tied->name, fmt::join(tied->shape, ", "));
  }
  if (tied->placements != head_.weight->placements)
    misuse("{}: the head and '{}', which is tied to it, are cut differently: give both the same option 'tensor'", path,
           tied->name);
  head_.weight = tied;
}

at::Tensor LmHead::input(const at::Tensor& h, Context& context) const {
  if (h.dim() != 3) misuse("{} takes h [samples, seq, hidden], got {}", path_, describe(h));
  const bool is_for_some = context.mode == Mode::generate && context.has_batch(kLogitsOf);
  const at::Tensor x = is_for_some ? rows_at(h, context.batch(kLogitsOf)) : h;
  return norm_.run(in_dtype_of(*head_.weight, x, context), context);
}

at::Tensor LmHead::logits(const at::Tensor& input, Context& context) const {
  const at::Tensor own = linear_into_parts(input, head_, tensor_, context);
  const KvCache* const cache = context.kv_cache();
  if (cache && tensor_.is_cut() && cache->class_axis() == tensor_.name()) return own;
  return tensor_.is_cut() ? gather_from(context, tensor_.name(), own, 2, head_.weight->shape[0], GatherUse::alike) : own;
}

std::optional<ClassShare> LmHead::class_share(Context& context) const {
  if (!tensor_.is_cut()) return {};
  const int64_t classes = head_.weight->shape[0];
  const auto exchange = [this, &context](const at::Tensor& mine) {
    return gather_from(context, tensor_.name(), mine.unsqueeze(0), 0, tensor_.ranks(), GatherUse::alike);
  };
  return ClassShare{tensor_.share(classes, context), classes, exchange};
}

void LmHead::check_batch(const BatchField& batch, Mode mode, bool has_labels) const {
  const at::Tensor labels = batch("labels"), places = batch(kLogitsOf), tokens = batch("tokens");
  if (has_labels && labels.defined()) {
    if (reads_tokens_) check_beside_tokens("labels", batch);
    check_labels(labels, ignore_index_, head_.weight->shape[0]);
  }
  if (mode == Mode::generate && places.defined() && tokens.defined() && tokens.dim() == 2)
    check_logit_places(places, tokens.size(0), tokens.size(1));
}

}  // namespace zt::nn
