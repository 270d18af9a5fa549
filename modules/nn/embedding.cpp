#include "embedding.h"

#include "function.h"
#include "kernels.h"
#include "layers.h"
#include "positions.h"
#include "rows.h"
#include "zt/options.h"

namespace zt::nn {

namespace {

// [samples, seq] int64 as it is used: on the CPU, contiguous, all in [0, limit).
at::Tensor checked_indices(const at::Tensor& indices, int64_t limit, const char* what) {
  if (indices.scalar_type() != at::kLong || indices.dim() != 2) {
    misuse("an embedding takes {}s as int64 [samples, seq], got {}", what, describe(indices));
  }
  const at::Tensor flat = indices.contiguous();
  const auto* data = flat.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (data[i] < 0 || data[i] >= limit) {
      misuse("{} {} at sample {}, place {} is outside the embedding's {} rows: check the data, or make the embedding larger",
             what, data[i], i / flat.size(1), i % flat.size(1), limit);
    }
  }
  return flat;
}

// out[r] += table[indices[r]]
void gather_rows(const at::Tensor& out, const at::Tensor& table, const at::Tensor& indices) {
  const int64_t width = table.size(1);
  for_dtype(table, [&](auto zero) {
    using T = decltype(zero);
    const auto* index = indices.const_data_ptr<int64_t>();
    for_rows(indices.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        kernels::add(out.data_ptr<T>() + r * width, table.const_data_ptr<T>() + index[r] * width, width);
      }
    });
  });
}

// table[indices[r]] += rows[r], r ascending: the order does not depend on the threads, which cut the columns.
void scatter_rows(const at::Tensor& table, const at::Tensor& rows, const at::Tensor& indices) {
  const int64_t width = table.size(1), count = indices.numel();
  for_dtype(rows, [&](auto zero) {
    using T = decltype(zero);
    const auto* index = indices.const_data_ptr<int64_t>();
    for_rows(width, count, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < count; ++r) {
        kernels::add(table.data_ptr<T>() + index[r] * width + begin, rows.const_data_ptr<T>() + r * width + begin, end - begin);
      }
    });
  });
}

using SinkFn = std::function<Context::Sink()>;

void scatter_into(const SinkFn& sink_of, const at::Tensor& dy, const at::Tensor& indices) {
  Context::Sink sink = sink_of();
  if (!sink.view.defined()) return;
  if (sink.first) sink.view.zero_();
  scatter_rows(sink.view, dy.to(sink.view.scalar_type()), indices);
}

// One table and what is looked up in it.
struct Lookup {
  std::shared_ptr<Param> table;
  at::Tensor indices;
  SinkFn sink;
};

struct LookupFunction : torch::autograd::Function<LookupFunction> {
  static at::Tensor forward(AutogradContext* node, at::TensorList tables, std::vector<Lookup> lookups, Context* context) {
    const at::Tensor& indices = lookups.front().indices;
    at::Tensor out = at::zeros({indices.size(0), indices.size(1), tables[0].size(1)}, tables[0].options().requires_grad(false));
    for (size_t i = 0; i < lookups.size(); ++i) gather_rows(out, tables[i], lookups[i].indices);
    keep(node, std::make_pair(std::move(lookups), context));
    return out;
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& [lookups, context] = kept<std::pair<std::vector<Lookup>, Context*>>(node);
    context->defer([lookups = lookups, dy = as_rows(grads[0])] {
      const at::NoGradGuard no_grad;
      for (const auto& lookup : lookups) scatter_into(lookup.sink, dy, lookup.indices);
    });
    return variable_list(lookups.size() + 2);
  }
};

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options) : dropout_(options.dropout) {
  const InitFn init = init_normal(0, options.std);
  weight_ = make_param("weight", {options.vocab, options.hidden}, init, true);
  if (options.positions > 0) positions_ = make_param("positions", {options.positions, options.hidden}, init, true);
}

std::vector<at::Tensor> Embedding::forward(at::TensorList, Context& context) {
  const at::Tensor tokens = checked_indices(context.batch("tokens"), weight_->shape[0], "token");
  std::vector<Lookup> lookups{{weight_, tokens, context.grad_sink(*weight_)}};
  variable_list tables{weight_->get()};
  if (positions_) {
    const at::Tensor positions = positions_of(context, tokens.size(0), tokens.size(1));
    const at::Tensor places = checked_indices(positions.expand_as(tokens), positions_->shape[0], "position");
    lookups.push_back({positions_, places, context.grad_sink(*positions_)});
    tables.push_back(positions_->get());
  }
  return {dropout_.run(LookupFunction::apply(at::TensorList(tables), std::move(lookups), &context), context)};
}

Params Embedding::params() const {
  return positions_ ? Params{weight_, positions_} : Params{weight_};
}

std::shared_ptr<Layer> make_embedding(const Value& value) {
  static const auto kSchema =
      Schema<EmbeddingOptions>("nn.embedding")
          .required("vocab", &EmbeddingOptions::vocab, "number of tokens", at_least(1))
          .required("hidden", &EmbeddingOptions::hidden, "columns of the output", at_least(1))
          .optional("positions", &EmbeddingOptions::positions, "rows of learned positions; 0: none", at_least(0))
          .optional("dropout", &EmbeddingOptions::dropout, "probability of a zero", between(0, 0.999))
          .optional("std", &EmbeddingOptions::std, "of the initial tables", at_least(0));
  return std::make_shared<Embedding>(kSchema.parse(value));
}

}  // namespace zt::nn
