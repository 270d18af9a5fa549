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

// Computes tiles of queries of the forward, one at a time.
template <class T, class A>
class AttentionForward {
 public:
  AttentionForward(const AttentionCall<T, A>& call, T* out, A* logsumexp) : call_(call), out_(out), logsumexp_(logsumexp) {}

  // Computes tile number `index` of all. Tiles that share a key head have consecutive numbers.
  void run(int64_t index) {
    const auto& c = call_;
    const int64_t tiles = c.query_tiles(), row = index / tiles;  // row: number of the pair (sample, head)
    const int64_t sample = row / c.inputs.shape.heads, head = row % c.inputs.shape.heads;
    load_keys(sample, c.inputs.shape.kv_of(head));
    run_tile(sample, head, c.query_tile(from_both_ends(index % tiles, tiles)));
  }

 private:
  // Maps 0, 1, 2, 3, ... to 0, n - 1, 1, n - 2, ... With a causal mask, later tiles cost more. In this order, the threads' shares
  // of the tiles cost about the same.
  static int64_t from_both_ends(int64_t i, int64_t n) { return i % 2 == 0 ? i / 2 : n - 1 - i / 2; }

  void load_keys(int64_t sample, int64_t kv) {
    const auto& c = call_;
    const int64_t pair = sample * c.inputs.shape.kv_heads + kv;
    if (pair == loaded_) return;
    loaded_ = pair;
    const T *key = c.qkv + c.joined_at(sample, 0, c.key_head(kv)), *value = c.qkv + c.joined_at(sample, 0, c.value_head(kv));
    tile::load(c.isa, values_, key, c.columns(), c.places, c.head_dim, A(1));
    tile::transpose(c.isa, keys_, values_, c.places, c.head_dim);
    tile::load(c.isa, values_, value, c.columns(), c.places, c.head_dim, A(1));
  }

  void run_tile(int64_t sample, int64_t head, TileRange queries) {
    const auto& c = call_;
    const int64_t rows = queries.end - queries.begin;
    A largest[kQueries], sum[kQueries], reciprocal[kQueries];
    std::fill_n(largest, kQueries, -std::numeric_limits<A>::infinity());
    std::fill_n(sum, kQueries, A(0));
    tile::load(c.isa, mixed_, c.qkv + c.joined_at(sample, queries.begin, head), c.columns(), rows, c.head_dim, c.scale);
    tile::transpose(c.isa, queries_, mixed_, rows, c.head_dim);
    bool later = false;
    c.for_keys(c.visible(sample, queries), [&](TileRange keys) {
      const int64_t count = keys.end - keys.begin;
      tile::multiply<A>(c.isa, {scores_, score_row_, queries_, 1, kPanel, keys_ + keys.begin * c.padded_dim, kPanel,
                                kPanel * c.padded_dim, rows, padded(count), c.head_dim, false});
      tile::softmax<A>(c.isa, scores_, score_row_, rows, c.mask(sample, head, queries, keys, kept_.data()),
                       {largest, sum, later ? mixed_ : nullptr, c.padded_dim});
      tile::multiply<A>(c.isa, {mixed_, c.padded_dim, scores_, score_row_, 1, values_ + keys.begin * c.padded_dim, c.padded_dim,
                                kPanel, rows, c.padded_dim, count, later});
      later = true;
    });
    A* logsumexp = logsumexp_ + c.row_at(sample, queries.begin, head);
    for (int64_t i = 0; i < rows; ++i) {
      logsumexp[i] = largest[i] + std::log(sum[i]);
      reciprocal[i] = 1 / sum[i];
    }
    T* out = out_ + c.out_at(sample, queries.begin, head);
    tile::store(c.isa, out, c.out_columns(), mixed_, rows, c.head_dim, reciprocal, A(1));
  }

  const AttentionCall<T, A>& call_;
  T* out_;
  A* logsumexp_;
  int64_t score_row_ = padded(std::min(call_.places, kKeys)) + tile::kChunk;
  Scratch<A> scratch_{call_.device};
  A* keys_ = scratch_.take(padded(call_.places, kPanel) * call_.padded_dim);
  A* values_ = scratch_.take(call_.places * call_.padded_dim);
  A* queries_ = scratch_.take(kQueries * call_.padded_dim);
  A* scores_ = scratch_.take(kQueries * score_row_);
  A* mixed_ = scratch_.take(kQueries * call_.padded_dim);
  std::vector<uint8_t> kept_ = std::vector<uint8_t>(call_.inputs.dropout ? kQueries * kKeys : 0);
  int64_t loaded_ = -1;  // number of the pair (sample, key head) whose keys and values are loaded
};

// Computes the backward of pairs (sample, key head), one at a time. The suffix _across marks transposed panels.
template <class T, class A>
class AttentionBackward {
 public:
  AttentionBackward(const AttentionCall<T, A>& call, T* dqkv, const T* dout, const T* out, const A* logsumexp)
      : call_(call), dqkv_(dqkv), dout_(dout), out_(out), logsumexp_(logsumexp) {}

  // Computes pair number `pair`: all query heads of a sample that share one key head.
  void run(int64_t pair) {
    const auto& c = call_;
    const int64_t sample = pair / c.inputs.shape.kv_heads, kv = pair % c.inputs.shape.kv_heads;
    const int64_t key_at = c.joined_at(sample, 0, c.key_head(kv)), value_at = c.joined_at(sample, 0, c.value_head(kv));
    tile::load(c.isa, keys_, c.qkv + key_at, c.columns(), c.places, c.head_dim, A(1));
    tile::transpose(c.isa, keys_across_, keys_, c.places, c.head_dim);
    tile::load(c.isa, dvalues_, c.qkv + value_at, c.columns(), c.places, c.head_dim, A(1));
    tile::transpose(c.isa, values_across_, dvalues_, c.places, c.head_dim);
    std::fill_n(dkeys_, c.places * c.padded_dim, A(0));
    std::fill_n(dvalues_, c.places * c.padded_dim, A(0));
    const Share heads = c.inputs.shape.heads_of(kv);
    for (int64_t head = heads.begin; head < heads.end(); ++head) {
      for (int64_t i = 0; i < c.query_tiles(); ++i) run_tile(sample, head, c.query_tile(i));
    }
    tile::store<A>(c.isa, dqkv_ + key_at, c.columns(), dkeys_, c.places, c.head_dim, nullptr, A(1));
    tile::store<A>(c.isa, dqkv_ + value_at, c.columns(), dvalues_, c.places, c.head_dim, nullptr, A(1));
  }

 private:
  void run_tile(int64_t sample, int64_t head, TileRange queries) {
    const auto& c = call_;
    const int64_t rows = queries.end - queries.begin, query_at = c.joined_at(sample, queries.begin, head);
    const int64_t out_at = c.out_at(sample, queries.begin, head);
    A dots[kQueries];
    tile::load(c.isa, queries_, c.qkv + query_at, c.columns(), rows, c.head_dim, c.scale);
    tile::load(c.isa, mixed_, out_ + out_at, c.out_columns(), rows, c.head_dim, A(1));
    tile::load(c.isa, dmixed_, dout_ + out_at, c.out_columns(), rows, c.head_dim, A(1));
    tile::transpose(c.isa, queries_across_, queries_, rows, c.head_dim);
    tile::transpose(c.isa, dmixed_across_, dmixed_, rows, c.head_dim);
    tile::row_dots<A>(c.isa, dots, mixed_, dmixed_, rows, c.head_dim);
    bool later = false;
    c.for_keys(c.visible(sample, queries), [&](TileRange keys) {
      const A* logsumexp = logsumexp_ + c.row_at(sample, queries.begin, head);
      run_keys(c.mask(sample, head, queries, keys, kept_.data()), rows, keys, logsumexp, dots, later);
      later = true;
    });
    tile::store<A>(c.isa, dqkv_ + query_at, c.columns(), dqueries_, rows, c.head_dim, nullptr, c.scale);
  }

  void run_keys(const tile::AttentionMask& mask, int64_t rows, TileRange keys, const A* logsumexp, const A* dots, bool later) {
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
    scores(weights_, queries_across_, keys_across_);
    scores(dscores_, dmixed_across_, values_across_);
    tile::softmax_backward(c.isa, weights_, dscores_, score_row_, rows, mask, logsumexp, dots);
    tile::multiply<A>(c.isa, {dqueries_, c.padded_dim, dscores_, score_row_, 1, keys_ + first, c.padded_dim, kPanel, rows,
                              c.padded_dim, count, later});
    add_over_queries(dkeys_, dscores_, queries_);
    add_over_queries(dvalues_, weights_, dmixed_);
  }

  const AttentionCall<T, A>& call_;
  T* dqkv_;
  const T *dout_, *out_;
  const A* logsumexp_;
  int64_t score_row_ = padded(std::min(call_.places, kKeys)) + tile::kChunk;
  Scratch<A> scratch_{call_.device};
  A* keys_ = scratch_.take(call_.places * call_.padded_dim);
  A* keys_across_ = scratch_.take(padded(call_.places, kPanel) * call_.padded_dim);
  A* values_across_ = scratch_.take(padded(call_.places, kPanel) * call_.padded_dim);
  A* dkeys_ = scratch_.take(call_.places * call_.padded_dim);
  A* dvalues_ = scratch_.take(call_.places * call_.padded_dim);
  A* queries_ = scratch_.take(kQueries * call_.padded_dim);
  A* dqueries_ = scratch_.take(kQueries * call_.padded_dim);
  A* queries_across_ = scratch_.take(kQueries * call_.padded_dim);
  A* mixed_ = scratch_.take(kQueries * call_.padded_dim);
  A* dmixed_across_ = scratch_.take(kQueries * call_.padded_dim);
  A* dmixed_ = scratch_.take(kQueries * call_.padded_dim);
  A* weights_ = scratch_.take(kQueries * score_row_);
  A* dscores_ = scratch_.take(kQueries * score_row_);
  std::vector<uint8_t> kept_ = std::vector<uint8_t>(call_.inputs.dropout ? kQueries * kKeys : 0);
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

}  // namespace

void attention_forward(const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& qkv, const AttentionInputs& inputs,
                       Isa isa) {
  for_dtypes(qkv, [&]<class T, class A>(T, A) {
    const AttentionCall<T, A> call(qkv, inputs, isa);
    for_tasks(call.samples * inputs.shape.heads * call.query_tiles(), call.device,
              [&] { return AttentionForward<T, A>(call, data_of<T>(out), data_of<A>(logsumexp)); });
  });
}

void attention_backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& logsumexp, const AttentionInputs& inputs, Isa isa) {
  for_dtypes(qkv, [&]<class T, class A>(T, A) {
    const AttentionCall<T, A> call(qkv, inputs, isa);
    for_tasks(call.samples * inputs.shape.kv_heads, call.device, [&] {
      return AttentionBackward<T, A>(call, data_of<T>(dqkv), data_of<T>(dout), data_of<T>(out), data_of<A>(logsumexp));
    });
  });
}

}  // namespace zt::nn
