#include "embedding.h"

#include <ATen/core/grad_mode.h>

#include <numeric>

#include "cpu/kernels.h"
#include "cuda/device_call.h"
#include "cuda/device_rows.h"
#include "layers.h"
#include "parts/function.h"
#include "parts/positions.h"
#include "zt/base/options.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// Returns `indices` contiguous. Throws Misuse unless they are int64 [samples, seq] and all in [0, limit).
at::Tensor checked_indices(const at::Tensor& indices, int64_t limit, const char* what) {
  if (indices.scalar_type() != at::kLong) {
    misuse("an embedding takes {0}s as int64 [samples, seq], got {1}: convert them with {0}s:to \"int64\"", what,
           describe(indices));
  }
  if (indices.dim() != 2) misuse("an embedding takes {}s as int64 [samples, seq], got {}", what, describe(indices));
  const at::Tensor flat = indices.contiguous();
  if (flat.is_meta()) return flat;
  const at::Tensor on_host = flat.cpu();
  const auto* data = on_host.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (data[i] < 0 || data[i] >= limit) {
      misuse("{} {} at sample {}, index {} is outside the embedding's {} rows: check the data, or make the embedding larger",
             what, data[i], i / flat.size(1), i % flat.size(1), limit);
    }
  }
  return flat;
}

// Adds out[r] += table[indices[r]] for each r.
void gather_rows(const at::Tensor& out, const at::Tensor& table, const at::Tensor& indices) {
  const int64_t width = table.size(1);
  for_dtype(table, [&](auto zero) {
    using T = decltype(zero);
    const auto* index = indices.const_data_ptr<int64_t>();
    if (on_gpu(out, device::GatherRows<T>{out.data_ptr<T>(), table.const_data_ptr<T>(), index, indices.numel(), width})) return;
    for_rows(indices.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        kernels::add_rows(out.data_ptr<T>() + r * width, table.const_data_ptr<T>(), index + r, 1, width, width);
      }
    });
  });
}

// Groups the places of `indices` by the table row that they look up. Row rows[i] is looked up at places[begins[i]] to
// places[begins[i + 1] - 1], in ascending order.
struct Uses {
  std::vector<int64_t> places, rows, begins;

  explicit Uses(const at::Tensor& indices) : places(indices.numel()) {
    const auto* index = indices.const_data_ptr<int64_t>();
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [=](int64_t a, int64_t b) { return index[a] < index[b]; });
    for (size_t i = 0; i < places.size(); ++i) {
      if (i > 0 && index[places[i]] == rows.back()) continue;
      rows.push_back(index[places[i]]);
      begins.push_back(static_cast<int64_t>(i));
    }
    begins.push_back(static_cast<int64_t>(places.size()));
  }
};

template <class To, class From>
void scatter_rows_on_gpu(const at::Tensor& table, const at::Tensor& dy, const at::Tensor& indices) {
  const std::tuple<at::Tensor, at::Tensor> found = indices.view({-1}).sort(std::optional(true), 0, false);
  const at::Tensor &sorted = std::get<0>(found), &places = std::get<1>(found);
  const int64_t *index = sorted.const_data_ptr<int64_t>(), *place = places.const_data_ptr<int64_t>();
  on_gpu(table, device::ScatterRows<To, From>{table.data_ptr<To>(), dy.const_data_ptr<From>(), index, place, indices.numel(),
                                              table.size(1)});
}

// Adds table[indices[r]] += dy[r], r ascending, and rounds each row of the table once. Threads share the columns.
template <class To, class From>
void scatter_rows(const at::Tensor& table, const at::Tensor& dy, const at::Tensor& indices) {
  const int64_t width = table.size(1);
  if (table.is_cuda()) return scatter_rows_on_gpu<To, From>(table, dy, indices);
  const Uses uses(indices);
  for_rows(width, indices.numel(), [&](int64_t begin, int64_t end) {
    for (size_t i = 0; i < uses.rows.size(); ++i) {
      kernels::add_rows(table.data_ptr<To>() + uses.rows[i] * width + begin, dy.const_data_ptr<From>() + begin,
                        uses.places.data() + uses.begins[i], uses.begins[i + 1] - uses.begins[i], width, end - begin);
    }
  });
}

// The indices that are looked up in a table.
struct Lookup {
  at::Tensor indices;
  Context::SinkFn sink;
  at::Tensor places = {};  // of the indices among the rows of the result; undefined: each has a row
};

// Adds the rows of the table to those of `out`.
void look_up(const at::Tensor& out, const at::Tensor& table, const Lookup& lookup) {
  if (!lookup.places.defined()) return gather_rows(out, table, lookup.indices);
  const at::Tensor rows = at::zeros({lookup.indices.numel(), table.size(1)}, out.options());
  gather_rows(rows, table, lookup.indices);
  as_rows(out).index_add_(0, lookup.places, rows);
}

// Adds dy to the sink. Converts dy first if the sink has neither the dtype of dy nor the wide one.
void scatter_into(const Lookup& lookup, const at::Tensor& of_all) {
  const auto [view, first] = lookup.sink();
  if (!view.defined()) return;
  if (first) view.zero_();
  const at::Tensor dy = lookup.places.defined() ? of_all.index({lookup.places}) : of_all;
  const bool is_wide = view.scalar_type() == wide_dtype(dy.scalar_type());
  const at::Tensor rows = is_wide ? dy : dy.to(view.scalar_type());
  for_dtype(rows, [&](auto zero) {
    using From = decltype(zero);
    if (is_wide) scatter_rows<kernels::Wide<From>, From>(view, rows, lookup.indices);
    else scatter_rows<From, From>(view, rows, lookup.indices);
  });
}

struct LookupFunction : torch::autograd::Function<LookupFunction> {
  // Returns the sums of the rows [samples, seq, columns]. `tokens` has the shape [samples, seq].
  static at::Tensor forward(AutogradContext* node, at::TensorList tables, const at::Tensor& tokens, std::vector<Lookup> lookups,
                            Context* context) {
    at::Tensor out = at::zeros({tokens.size(0), tokens.size(1), tables[0].size(1)}, tables[0].options().requires_grad(false));
    for (size_t i = 0; i < lookups.size(); ++i) look_up(out, tables[i], lookups[i]);
    keep(node, std::make_pair(std::move(lookups), context));
    return out;
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& [lookups, context] = kept<std::pair<std::vector<Lookup>, Context*>>(node);
    context->defer([lookups = lookups, dy = as_rows(grads[0])] {
      const at::NoGradGuard no_grad;
      for (const auto& lookup : lookups) scatter_into(lookup, dy);
    });
    return variable_list(lookups.size() + 3);
  }
};

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options) : tensor_(options, "nn.embedding"), dropout_(options.dropout) {
  const InitFn init = init_normal(0, options.std);
  weight_ = make_param("weight", {options.vocab, options.hidden}, init, true, {"vocab", "hidden"});
  tensor_.check_enough(options.vocab, "tokens", "nn.embedding");
  tensor_.cut_rows({weight_, nullptr}, {{options.vocab, 1}});
  if (options.positions == 0) return;
  positions_ = make_param("positions", {options.positions, options.hidden}, init, true, {"position", "hidden"});
  tensor_.sum_over_stream({positions_});
}

void Embedding::check_batch(const BatchField& batch, Mode) const {
  const at::Tensor tokens = batch("tokens");
  if (!tokens.defined())
    misuse("an embedding needs the batch field 'tokens', int64 [samples, seq], which the batch does not have");
  checked_indices(tokens, weight_->shape[0], "token");
  if (!positions_) return;
  check_beside_tokens("positions", batch);
  const at::Tensor positions = batch("positions");
  if (positions.defined()) checked_indices(positions, positions_->shape[0], "position");
  else if (tokens.size(1) > positions_->shape[0])
    misuse("samples have {} tokens, and the embedding has {} positions: give shorter samples, or make the table larger",
           tokens.size(1), positions_->shape[0]);
}

// Returns the places in the table of positions of the rank's tokens, or of those that it has of the residual stream.
at::Tensor Embedding::places_of(const at::Tensor& tokens, std::optional<Share> own, Context& context) const {
  const at::Device device = tokens.device();
  const at::Tensor positions = positions_of(context, tokens.size(0), tokens.size(1), tokens.is_meta() ? device : at::kCPU);
  const at::Tensor all = positions.expand_as(tokens);
  return checked_indices(own ? all.narrow(1, own->begin, own->count) : all, positions_->shape[0], "position")
      .to(device, at::kLong, /*non_blocking=*/true);
}

// Returns the rows of the tokens [samples, seq, hidden] from the ranks that have them. On device meta as if this rank had all.
at::Tensor Embedding::token_rows(const at::Tensor& tokens, Context& context) const {
  const at::Tensor& table = context.param(*weight_);
  const Share share = tensor_.share(weight_->shape[0], context);
  at::Tensor own = tokens.flatten(), places = own;
  if (!tokens.is_meta()) {
    places = (own >= share.begin).logical_and_(own < share.end()).nonzero().flatten();
    own = own.index_select(0, places).sub_(share.begin);
  }
  std::vector<Lookup> lookups{{own, context.grad_sink(*weight_), places}};
  return tensor_.leave(run_function<LookupFunction>(at::TensorList{table}, tokens, std::move(lookups), &context), context);
}

std::vector<at::Tensor> Embedding::forward(at::TensorList, Context& context) {
  const at::Device device = context.param(*weight_).device();
  const at::Tensor tokens =
      checked_indices(context.batch("tokens"), weight_->shape[0], "token").to(device, at::kLong, /*non_blocking=*/true);
  std::vector<Lookup> lookups;
  variable_list tables;
  if (!tensor_.is_cut()) {
    lookups.push_back({tokens, context.grad_sink(*weight_)});
    tables.push_back(context.param(*weight_));
  }
  const std::optional<Share> own = tensor_.own_tokens(context);
  if (positions_) {
    lookups.push_back({places_of(tokens, own, context), context.grad_sink(*positions_)});
    tables.push_back(context.param(*positions_));
  }
  at::Tensor h = tensor_.is_cut() ? token_rows(tokens, context) : at::Tensor();
  if (!tables.empty()) {
    const at::Tensor rows = run_function<LookupFunction>(at::TensorList(tables), lookups.front().indices, lookups, &context);
    h = h.defined() ? h + rows : rows;
  }
  return {dropout_.run(h, context, {}, own)};
}

std::shared_ptr<Layer> make_embedding(const Value& value) {
  static const auto kSchema =
      stream_options(tensor_sum_options(Schema<EmbeddingOptions>("nn.embedding"), "the rows of tokens are cut"))
          .required("vocab", &EmbeddingOptions::vocab, "number of tokens", at_least(1))
          .required("hidden", &EmbeddingOptions::hidden, "columns of the output", at_least(1))
          .optional("positions", &EmbeddingOptions::positions, "number of learned positions; 0: none", at_least(0))
          .optional("dropout", &EmbeddingOptions::dropout, "dropout probability of the output", between(0, 0.999))
          .optional("std", &EmbeddingOptions::std, "standard deviation of the initial tables", at_least(0));
  return kSchema.make(value, [](const EmbeddingOptions& o) { return std::make_shared<Embedding>(o); });
}

}  // namespace zt::nn
