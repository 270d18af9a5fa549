#include "attention_tiled.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_call.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

// Computes groups of queries of the forward, one at a time. O is the dtype of the result.
template <class T, class A, class O>
class AttentionForward {
 public:
  AttentionForward(const AttentionCall<T, A>& call, O* out, A* logsumexp) : call_(call), out_(out), logsumexp_(logsumexp) {}

  // Computes group number `index` of all. Groups that share a key head have consecutive numbers.
  void run(int64_t index) {
    const auto& c = call_;
    const int64_t groups = c.query_groups(), row = index / groups;  // row: number of the pair (sample, head)
    const int64_t sample = row / c.rule.shape.heads, head = row % c.rule.shape.heads;
    load_keys(sample, c.rule.shape.kv_of(head));
    run_group(sample, head, c.query_group(sample, from_both_ends(index % groups, groups)));
  }

 private:
  // Maps 0, 1, 2, 3, ... to 0, n - 1, 1, n - 2, ... With a causal mask, later groups cost more. In this order, the threads'
  // shares of the groups cost about the same.
  static int64_t from_both_ends(int64_t i, int64_t n) { return i % 2 == 0 ? i / 2 : n - 1 - i / 2; }

  void load_keys(int64_t sample, int64_t kv) {
    const auto& c = call_;
    const int64_t pair = sample * c.rule.shape.kv_heads + kv;
    if (pair == loaded_) return;
    loaded_ = pair;
    const int64_t first = c.needed.begin, count = c.needed.end - first;
    A *keys = keys_ + first * c.padded_dim, *values = values_ + first * c.padded_dim;
    tile::load(c.isa, values, c.keys.at(sample, first, kv), c.keys.row_stride, count, c.head_dim, A(1));
    tile::transpose(c.isa, keys, values, count, c.head_dim);
    tile::load(c.isa, values, c.values.at(sample, first, kv), c.values.row_stride, count, c.head_dim, A(1));
  }

  // A tile of queries, and its sums over the keys so far.
  struct State {
    A largest[kQueries], sum[kQueries];
    A *queries, *mixed;
  };

  void run_group(int64_t sample, int64_t head, const QueryGroup& group) {
    const auto& c = call_;
    for (size_t i = 0; i < group.size(); ++i) begin(states_[i], sample, head, group[i]);
    c.for_keys(group, [&](size_t i, TileRange queries, TileRange keys, bool is_first) {
      State& state = states_[i];
      const int64_t rows = queries.end - queries.begin, count = keys.end - keys.begin;
      tile::multiply<A>(c.isa, {scores_, score_row_, state.queries, 1, kPanel, keys_ + keys.begin * c.padded_dim, kPanel,
                                kPanel * c.padded_dim, rows, padded(count), c.head_dim, false});
      tile::softmax<A>(c.isa, scores_, score_row_, rows, c.mask(sample, head, queries, keys, kept_.data()),
                       {state.largest, state.sum, is_first ? nullptr : state.mixed, c.padded_dim});
      tile::multiply<A>(c.isa, {state.mixed, c.padded_dim, scores_, score_row_, 1, values_ + keys.begin * c.padded_dim,
                                c.padded_dim, kPanel, rows, c.padded_dim, count, !is_first});
    });
    for (size_t i = 0; i < group.size(); ++i) store(sample, head, group[i].rows, states_[i]);
  }

  void begin(State& state, int64_t sample, int64_t head, const QueryTile& tile) {
    const auto& c = call_;
    const int64_t rows = tile.rows.end - tile.rows.begin;
    std::fill_n(state.largest, kQueries, -std::numeric_limits<A>::infinity());
    std::fill_n(state.sum, kQueries, A(0));
    if (tile.sees_none()) return void(std::fill_n(state.mixed, rows * c.padded_dim, A(0)));
    tile::load(c.isa, state.mixed, c.queries.at(sample, tile.rows.begin, head), c.queries.row_stride, rows, c.head_dim, c.scale);
    tile::transpose(c.isa, state.queries, state.mixed, rows, c.head_dim);
  }

  // Stores the result of a tile from the sums over all keys. A row that sees no key has the sum 0, and the weighted sum 0.
  void store(int64_t sample, int64_t head, TileRange queries, const State& state) {
    const auto& c = call_;
    const int64_t rows = queries.end - queries.begin;
    A reciprocal[kQueries];
    A* logsumexp = logsumexp_ + c.row_at(sample, queries.begin, head);
    for (int64_t i = 0; i < rows; ++i) {
      logsumexp[i] = state.largest[i] + std::log(state.sum[i]);
      reciprocal[i] = state.sum[i] == 0 ? A(0) : 1 / state.sum[i];
    }
    O* out = out_ + c.out_at(sample, queries.begin, head);
    tile::store(c.isa, out, c.out_columns(), state.mixed, rows, c.head_dim, reciprocal, A(1));
  }

  const AttentionCall<T, A>& call_;
  O* out_;
  A* logsumexp_;
  int64_t score_row_ = padded(std::min(call_.key_count, kKeys)) + tile::kChunk;
  Scratch<A> scratch_{call_.device};
  A* keys_ = scratch_.take(padded(call_.key_count, kPanel) * call_.padded_dim);
  A* values_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* scores_ = scratch_.take(kQueries * score_row_);
  std::vector<State> states_ = made_states();
  std::vector<uint8_t> kept_ = std::vector<uint8_t>(call_.rule.dropout ? kQueries * kKeys : 0);
  int64_t loaded_ = -1;  // number of the pair (sample, key head) whose keys and values are loaded

  std::vector<State> made_states() {
    std::vector<State> states(std::min(call_.query_tiles(), kGroup));
    for (State& state : states) {
      state.queries = scratch_.take(kQueries * call_.padded_dim);
      state.mixed = scratch_.take(kQueries * call_.padded_dim);
    }
    return states;
  }
};

// Computes the backward of pairs (sample, key head), one at a time. The suffix _across marks transposed panels. G is the dtype of
// the gradients.
template <class T, class A, class G>
class AttentionBackward {
 public:
  struct Gradients {
    HeadRows<G> queries, keys, values;
    GradientSum sum;
  };
  AttentionBackward(const AttentionCall<T, A>& call, const Gradients& grads, const T* dout, const T* out, const A* logsumexp)
      : call_(call), grads_(grads), dout_(dout), out_(out), logsumexp_(logsumexp) {}

  // Computes pair number `pair`: all query heads of a sample that share one key head.
  void run(int64_t pair) {
    const auto& c = call_;
    const int64_t sample = pair / c.rule.shape.kv_heads, kv = pair % c.rule.shape.kv_heads;
    const int64_t first = c.needed.begin, count = c.needed.end - first, at = first * c.padded_dim;
    tile::load(c.isa, keys_ + at, c.keys.at(sample, first, kv), c.keys.row_stride, count, c.head_dim, A(1));
    tile::transpose(c.isa, keys_across_ + at, keys_ + at, count, c.head_dim);
    tile::load(c.isa, dvalues_ + at, c.values.at(sample, first, kv), c.values.row_stride, count, c.head_dim, A(1));
    tile::transpose(c.isa, values_across_ + at, dvalues_ + at, count, c.head_dim);
    begin(dkeys_, grads_.keys, sample, kv);
    begin(dvalues_, grads_.values, sample, kv);
    const Share heads = c.rule.shape.heads_of(kv);
    for (int64_t head = heads.begin; head < heads.end(); ++head) {
      for (int64_t i = 0; i < c.query_groups(); ++i) run_group(sample, head, c.query_group(sample, i));
    }
    end(dkeys_, grads_.keys, sample, kv);
    end(dvalues_, grads_.values, sample, kv);
  }

 private:
  // Sets the sum of a gradient of keys or values to 0, or to the earlier gradient.
  void begin(A* sum, const HeadRows<G>& grad, int64_t sample, int64_t kv) {
    const auto& c = call_;
    if (grads_.sum == GradientSum::write) return void(std::fill_n(sum, c.key_count * c.padded_dim, A(0)));
    tile::load(c.isa, sum, grad.at(sample, 0, kv), grad.row_stride, c.key_count, c.head_dim, A(1));
  }
  void end(const A* sum, const HeadRows<G>& grad, int64_t sample, int64_t kv) {
    const auto& c = call_;
    tile::store<A>(c.isa, grad.at(sample, 0, kv), grad.row_stride, sum, c.key_count, c.head_dim, nullptr, A(1));
  }

  // A tile of queries with the gradient of its result, and the sum of its own gradient over the keys so far.
  struct State {
    A dots[kQueries];
    A *queries, *queries_across, *dmixed, *dmixed_across, *dqueries;
  };

  void run_group(int64_t sample, int64_t head, const QueryGroup& group) {
    const auto& c = call_;
    for (size_t i = 0; i < group.size(); ++i) load_queries(states_[i], sample, head, group[i]);
    c.for_keys(group, [&](size_t i, TileRange queries, TileRange keys, bool is_first) {
      const A* logsumexp = logsumexp_ + c.row_at(sample, queries.begin, head);
      run_keys(states_[i], c.mask(sample, head, queries, keys, kept_.data()), queries.end - queries.begin, keys, logsumexp,
               is_first);
    });
    for (size_t i = 0; i < group.size(); ++i) store_queries(states_[i], sample, head, group[i].rows);
  }

  void load_queries(State& state, int64_t sample, int64_t head, const QueryTile& tile) {
    const auto& c = call_;
    const int64_t rows = tile.rows.end - tile.rows.begin, out_at = c.out_at(sample, tile.rows.begin, head);
    if (tile.sees_none()) return void(std::fill_n(state.dqueries, rows * c.padded_dim, A(0)));
    tile::load(c.isa, state.queries, c.queries.at(sample, tile.rows.begin, head), c.queries.row_stride, rows, c.head_dim,
               c.scale);
    tile::load(c.isa, mixed_, out_ + out_at, c.out_columns(), rows, c.head_dim, A(1));
    tile::load(c.isa, state.dmixed, dout_ + out_at, c.out_columns(), rows, c.head_dim, A(1));
    tile::transpose(c.isa, state.queries_across, state.queries, rows, c.head_dim);
    tile::transpose(c.isa, state.dmixed_across, state.dmixed, rows, c.head_dim);
    tile::row_dots<A>(c.isa, state.dots, mixed_, state.dmixed, rows, c.head_dim);
  }

  void store_queries(const State& state, int64_t sample, int64_t head, TileRange queries) {
    const auto& c = call_;
    const int64_t rows = queries.end - queries.begin;
    G* to = grads_.queries.at(sample, queries.begin, head);
    if (grads_.sum == GradientSum::write)
      return tile::store<A>(c.isa, to, grads_.queries.row_stride, state.dqueries, rows, c.head_dim, nullptr, c.scale);
    tile::load(c.isa, mixed_, to, grads_.queries.row_stride, rows, c.head_dim, A(1));
    for (int64_t i = 0; i < rows * c.padded_dim; ++i) mixed_[i] += state.dqueries[i] * c.scale;
    tile::store<A>(c.isa, to, grads_.queries.row_stride, mixed_, rows, c.head_dim, nullptr, A(1));
  }

  void run_keys(const State& state, const tile::AttentionMask& mask, int64_t rows, TileRange keys, const A* logsumexp,
                bool is_first) {
    const auto& c = call_;
    const int64_t count = keys.end - keys.begin, first = keys.begin * c.padded_dim;
    const auto scores = [&](A* to, const A* a, const A* b) {
      tile::multiply<A>(c.isa, {to, score_row_, a, 1, kPanel, b + first, kPanel, kPanel * c.padded_dim, rows, padded(count),
                                c.head_dim, false});
    };
    const auto add_over_queries = [&](A* to, const A* a, const A* b) {
      tile::multiply<A>(c.isa,
                        {to + first, c.padded_dim, a, 1, score_row_, b, c.padded_dim, kPanel, count, c.padded_dim, rows, true});
    };
    scores(weights_, state.queries_across, keys_across_);
    scores(dscores_, state.dmixed_across, values_across_);
    tile::softmax_backward(c.isa, weights_, dscores_, score_row_, rows, mask, logsumexp, state.dots);
    tile::multiply<A>(c.isa, {state.dqueries, c.padded_dim, dscores_, score_row_, 1, keys_ + first, c.padded_dim, kPanel, rows,
                              c.padded_dim, count, !is_first});
    add_over_queries(dkeys_, dscores_, state.queries);
    add_over_queries(dvalues_, weights_, state.dmixed);
  }

  const AttentionCall<T, A>& call_;
  Gradients grads_;
  const T *dout_, *out_;
  const A* logsumexp_;
  int64_t score_row_ = padded(std::min(call_.key_count, kKeys)) + tile::kChunk;
  Scratch<A> scratch_{call_.device};
  A* keys_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* keys_across_ = scratch_.take(padded(call_.key_count, kPanel) * call_.padded_dim);
  A* values_across_ = scratch_.take(padded(call_.key_count, kPanel) * call_.padded_dim);
  A* dkeys_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* dvalues_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* mixed_ = scratch_.take(kQueries * call_.padded_dim);
  A* weights_ = scratch_.take(kQueries * score_row_);
  A* dscores_ = scratch_.take(kQueries * score_row_);
  std::vector<State> states_ = made_states();
  std::vector<uint8_t> kept_ = std::vector<uint8_t>(call_.rule.dropout ? kQueries * kKeys : 0);

  std::vector<State> made_states() {
    std::vector<State> states(std::min(call_.query_tiles(), kGroup));
    for (State& state : states) {
      for (A** part : {&state.queries, &state.queries_across, &state.dmixed, &state.dmixed_across, &state.dqueries})
        *part = scratch_.take(kQueries * call_.padded_dim);
    }
    return states;
  }
};

// Calls body(T{}, A{}), where T is the dtype of x and A the type of the arithmetic. Throws Misuse for other dtypes.
template <class Body>
void for_dtypes(const at::Tensor& x, const Body& body) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return body(float{}, float{});
    case at::kDouble:
      return body(double{}, double{});
    case at::kBFloat16:
      return body(c10::BFloat16{}, float{});
    case at::kHalf:
      return body(c10::Half{}, float{});
    default:
      misuse("attention computes in float16, bfloat16, float32 or float64, got {}", describe(x));
  }
}

// Calls run(index) for all indices in parallel. Each thread makes one task object for its share of the indices. On device meta
// one task object is made, as by the calling thread, and nothing is run.
template <class MakeTask>
void for_tasks(int64_t count, at::Device device, const MakeTask& make_task) {
  if (device.is_meta()) return void(make_task());
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    auto task = make_task();
    for (int64_t index = begin; index < end; ++index) task.run(index);
  });
}

// Returns the elements of a tensor of that dtype; null on device meta.
template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// Calls body(R{}), where R is T or A, whichever the results have.
template <class T, class A, class Body>
void for_result(const at::Tensor& result, const at::Tensor& in, const Body& body) {
  if (result.scalar_type() == in.scalar_type()) body(T{});
  else body(A{});
}

}  // namespace

void attention_forward(const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in,
                       const AttentionTokens& tokens, const AttentionRule& rule, Isa isa) {
  for_dtypes(in.queries, [&]<class T, class A>(T, A) {
    const AttentionCall<T, A> call(in, tokens, rule, isa);
    for_result<T, A>(out, in.queries, [&]<class O>(O) {
      for_tasks(call.samples * rule.shape.heads * call.query_groups(), call.device,
                [&] { return AttentionForward<T, A, O>(call, data_of<O>(out), data_of<A>(logsumexp)); });
    });
  });
}

void attention_backward(const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in,
                        const at::Tensor& out, const at::Tensor& logsumexp, const AttentionTokens& tokens,
                        const AttentionRule& rule, Isa isa) {
  for_dtypes(in.queries, [&]<class T, class A>(T, A) {
    const AttentionCall<T, A> call(in, tokens, rule, isa);
    for_result<T, A>(grads.queries, in.queries, [&]<class G>(G) {
      using Task = AttentionBackward<T, A, G>;
      const auto rows = [&](const at::Tensor& view) { return HeadRows<G>(view, rule.shape.head_dim); };
      const typename Task::Gradients to{rows(grads.queries), rows(grads.keys), rows(grads.values), sum};
      for_tasks(call.samples * rule.shape.kv_heads, call.device,
                [&] { return Task(call, to, data_of<T>(dout), data_of<T>(out), data_of<A>(logsumexp)); });
    });
  });
}

}  // namespace zt::nn
