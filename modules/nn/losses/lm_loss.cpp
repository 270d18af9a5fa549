#include "lm_loss.h"

#include "layers/embedding.h"
#include "layers/layers.h"
#include "logit_places.h"
#include "parts/function.h"
#include "parts/positions.h"
#include "softmax_loss.h"
#include "tiled_head.h"
#include "zt/base/options.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

constexpr const char* kLogitsOf = "logits_of";

struct HeadState {
  AffineValues head;
  AffineGradient gradient;
  InputRows input;
  SoftmaxLoss loss;
  size_t parameters;       // their number
  at::Tensor logits = {};  // the only reference, because the backward overwrites them
};

struct HeadLossFunction : torch::autograd::Function<HeadLossFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& h, at::TensorList /*parameters*/, HeadState state) {
    const at::Tensor rows = as_rows(state.input.enter().to_parts(h).wait());
    state.logits = affine_rows(rows, state.head.weight, state.head.bias);
    LoraPass(state.head.lora).add(state.logits, rows);
    at::Tensor sum = state.loss.sum(state.logits);
    node->save_for_backward({h});
    keep(node, std::move(state));
    return sum;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    auto& state = kept<HeadState>(node);
    if (!state.logits.defined()) fault("the backward of an lm_loss ran twice: the first backward has overwritten its logits");
    const at::Tensor dlogits = std::exchange(state.logits, at::Tensor()), h = node->get_saved_variables()[0];
    const Crossing& enter = state.input.enter();
    state.input.begin_again(h);
    state.loss.gradient(dlogits, dlogits, grads[0]);
    MoveResult dh;
    if (node->needs_input_grad(0)) {
      const at::Tensor rows = affine_input_gradient(dlogits, state.head.weight);
      LoraPass(state.head.lora).add_input_gradient(rows, dlogits);
      dh = enter.to_stream(enter.shaped(rows, h));
    }
    state.gradient.add(dlogits, state.input.again());
    variable_list results{dh.wait()};
    results.resize(1 + state.parameters + 1);
    return results;
  }
};

// Returns the loss of h [samples, tokens, hidden], with all logits in one buffer.
at::Tensor whole_head_loss(const at::Tensor& h, Crossing enter, const Affine& head, SoftmaxLoss loss, Context& context) {
  const AffineValues values = head.values(context, h, enter);
  const variable_list parameters = head.parameters(context);
  HeadState state{values, AffineGradient(head, values, context), InputRows(h, std::move(enter), values.needs_input()),
                  std::move(loss), parameters.size()};
  return run_function<HeadLossFunction>(h, at::TensorList(parameters), std::move(state));
}

// Returns the parameter that the option `tied` names; null for nil.
std::shared_ptr<Param> tied_param(const Value& tied) {
  if (tied.is_nil()) return nullptr;
  const auto* object = tied.get_if<Object>();
  if (object && object->as<Param>()) return object->as<Param>();
  const auto layer = object ? std::dynamic_pointer_cast<Embedding>(object->as<Layer>()) : nullptr;
  if (!layer) wrong_type("nn.lm_loss.tied", "an nn.embedding layer or a Param", tied);
  return layer->weight();
}

}  // namespace

LmLoss::LmLoss(const LmLossOptions& options)
    : norm_(options.norm, options.hidden, options.eps, options.norm_bias, "norm."),
      tensor_(options, "nn.lm_loss"),
      ignore_index_(options.ignore_index),
      has_loss_(options.loss),
      reads_tokens_(options.reads_tokens),
      tile_(options.tile) {
  head_ = make_affine("", options.hidden, options.vocab, options.bias ? Bias::yes : Bias::no, init_normal(0, options.std));
  head_.weight->packing = Packing::up_to_int8;  // its errors go to the logits directly
  head_.lora = make_lora(*head_.weight, "", options.lora, {{kHeadTarget, 0, options.vocab}}, LoraInput::head);
  tensor_.check_enough(options.vocab, "classes", "nn.lm_loss");
  tensor_.cut_rows(head_, {{options.vocab, 1}});
  tensor_.sum_over_stream(norm_.params());
  const auto tied = tied_param(options.tied);
  if (!tied) return;
  if (tied->shape != head_.weight->shape) {
    misuse("nn.lm_loss: a tied head needs weights [vocab, hidden] = [{}, {}], but '{}' is [{}]", options.vocab, options.hidden,
           tied->name, fmt::join(tied->shape, ", "));
  }
  if (tied->placements != head_.weight->placements)
    misuse("nn.lm_loss: the head and '{}', which is tied to it, are cut differently: give both the same option 'tensor'",
           tied->name);
  head_.weight = tied;
}

// Returns the logits of all classes, or of the rank's own ones if the cache wants these.
at::Tensor LmLoss::logits(const at::Tensor& h, Context& context) const {
  const at::Tensor own = linear_into_parts(h, head_, tensor_, context);
  const KvCache* const cache = context.kv_cache();
  if (cache && tensor_.is_cut() && cache->class_axis() == tensor_.name()) return own;
  return tensor_.is_cut() ? gather_from(context, tensor_.name(), own, 2, head_.weight->shape[0], GatherUse::alike) : own;
}

std::optional<ClassShare> LmLoss::class_share(Context& context) const {
  if (!tensor_.is_cut()) return {};
  const int64_t classes = head_.weight->shape[0];
  const auto exchange = [this, &context](const at::Tensor& mine) {
    return gather_from(context, tensor_.name(), mine.unsqueeze(0), 0, tensor_.ranks(), GatherUse::alike);
  };
  return ClassShare{tensor_.share(classes, context), classes, exchange};
}

std::vector<at::Tensor> LmLoss::forward(at::TensorList in, Context& context) {
  if (in[0].dim() != 3) misuse("nn.lm_loss takes h [samples, seq, hidden], got {}", describe(in[0]));
  const bool is_for_some = context.mode == Mode::generate && context.has_batch(kLogitsOf);
  const at::Tensor x = is_for_some ? rows_at(in[0], context.batch(kLogitsOf)) : in[0];
  const at::Tensor h = norm_.run(in_dtype_of(*head_.weight, x, context), context);
  if (!has_loss_ || context.mode == Mode::generate) return {logits(h, context)};
  SoftmaxLoss loss(context.batch("labels"), ignore_index_, class_share(context));
  Crossing enter = tensor_.crossing(h, context);
  context.loss("loss",
               tile_ > 0 ? tiled_head_loss(h, std::move(enter), head_, std::move(loss), tile_, context)
                         : whole_head_loss(h, std::move(enter), head_, std::move(loss), context),
               Per::token);
  return {at::Tensor()};
}

Counts LmLoss::count(const BatchField& batch) const {
  return has_loss_ ? count_labels(batch, ignore_index_) : Counts{};
}

void LmLoss::check_batch(const BatchField& batch, Mode mode) const {
  const at::Tensor labels = batch("labels"), places = batch(kLogitsOf), tokens = batch("tokens");
  if (has_loss_ && mode != Mode::generate && labels.defined()) {
    if (reads_tokens_) check_beside_tokens("labels", batch);
    check_labels(labels, ignore_index_, head_.weight->shape[0]);
  }
  if (mode == Mode::generate && places.defined() && tokens.defined() && tokens.dim() == 2)
    check_logit_places(places, tokens.size(0), tokens.size(1));
}

std::shared_ptr<Layer> make_lm_loss(const Value& value) {
  static const auto kSchema =
      stream_options(tensor_options(Schema<LmLossOptions>("nn.lm_loss"), "the classes are cut"))
          .required("vocab", &LmLossOptions::vocab, "number of classes", at_least(1))
          .required("hidden", &LmLossOptions::hidden, "columns of the input", at_least(1))
          .optional("norm", &LmLossOptions::norm, "norm before the head")
          .optional("eps", &LmLossOptions::eps, "eps of the norm", at_least(0))
          .only_with("with a norm", [](const LmLossOptions& o) { return o.norm != NormKind::none; })
          .optional("norm_bias", &LmLossOptions::norm_bias, "add a bias in the norm")
          .only_with("with norm = \"layernorm\"", [](const LmLossOptions& o) { return o.norm == NormKind::layernorm; })
          .optional("bias", &LmLossOptions::bias, "add a bias in the head")
          .optional("ignore_index", &LmLossOptions::ignore_index, "label of tokens that do not count")
          .only_with("with loss = true", [](const LmLossOptions& o) { return o.loss; })
          .optional("loss", &LmLossOptions::loss, "add the loss; if false, the logits are an output")
          .optional("tile", &LmLossOptions::tile, "rows whose logits exist at the same time in training; 0: all", at_least(0))
          .only_with("with loss = true", [](const LmLossOptions& o) { return o.loss; })
          .optional("lora", &LmLossOptions::lora, "an adapter of the head, which is frozen")
          .optional("std", &LmLossOptions::std, "standard deviation of the head's initial weights", at_least(0))
          .only_with("without tied", [](const LmLossOptions& o) { return o.tied.is_nil(); })
          .optional("tied", &LmLossOptions::tied, "the embedding that shares its weights with the head");
  return kSchema.make(value, [](const LmLossOptions& options) {
    return make_with_lora(options, kSchema.name(), {kHeadTarget}, {kHeadTarget},
                          [](const auto& o) { return std::make_shared<LmLoss>(o); });
  });
}

}  // namespace zt::nn
