#include "attention_cached.h"

#include <ATen/Parallel.h>

#include "attention_call.h"
#include "cache_rows.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

// Queries of one sequence that share a key head and see the same tiles of keys: rows x heads of them, row by row.
struct CachedTile {
  Share rows, heads;  // of the micro-batch, and of the layer
  int64_t place;      // of the first row in its sequence
  TileRange visible;  // the keys that they see, from the start of a panel

  int64_t count() const { return rows.count * heads.count; }
};

// Up to kGroup tiles of one sequence and one head of the keys: a thread computes them together.
struct CachedTask {
  const KvSequence* sequence;
  int64_t kv;
  c10::SmallVector<CachedTile, kGroup> tiles;

  bool has_few_rows() const { return tiles.size() == 1 && tiles[0].count() <= kFewRows; }

  static constexpr int64_t kFewRows = 8;  // they read each key at most twice
};

// Adds the tasks of a sequence for a key head. Tiles end with panels of places, so that the queries of one begin with the same
// key, which is the one that the panel would begin with in a whole sample.
void add_tasks(std::vector<CachedTask>& tasks, const KvSequence& sequence, int64_t kv, const AttentionRule& rule) {
  const Share heads = rule.shape.heads_of(kv);
  const int64_t most_heads = std::min(heads.count, kQueries), most_rows = std::max<int64_t>(kQueries / heads.count, 1);
  CachedTask task{&sequence, kv, {}};
  for (int64_t row = 0; row < sequence.rows;) {
    const int64_t place = sequence.past + row, panel = place - place % kPanel;
    const int64_t count = std::min({most_rows, panel + kPanel - place, sequence.rows - row});
    const int64_t first_key = rule.sees.first_key(panel);
    const TileRange visible{first_key - first_key % kPanel, place + count};
    for (int64_t head = 0; head < heads.count; head += most_heads) {
      const Share some{heads.begin + head, std::min(most_heads, heads.count - head)};
      task.tiles.push_back({{sequence.first_row + row, count}, some, place, visible});
      if (task.tiles.size() == kGroup) tasks.push_back(std::exchange(task, {&sequence, kv, {}}));
    }
    row += count;
  }
  if (!task.tiles.empty()) tasks.push_back(std::move(task));
}

// The tensors of a call. Q is the dtype of the rows, T that of the cache, A that of the arithmetic.
template <class Q, class T, class A>
class CachedAttention {
 public:
  CachedAttention(const at::Tensor& qkv, const at::Tensor& out, const AttentionRule& rule, const CachedRows& rows, Isa isa)
      : rule_(rule),
        rows_(rows),
        isa_(isa),
        cache_(rows.layer),
        dim_(rule.shape.head_dim),
        columns_(qkv.size(2)),
        qkv_(static_cast<const Q*>(qkv.const_data_ptr())),
        out_(static_cast<Q*>(out.mutable_data_ptr())) {}

  void run() {
    write_rows();
    std::vector<CachedTask> tasks;
    for (const KvSequence& sequence : rows_.sequences) {
      for (int64_t kv = 0; kv < rule_.shape.kv_heads; ++kv) add_tasks(tasks, sequence, kv, rule_);
    }
    for_parts(static_cast<int64_t>(tasks.size()), 1, [&] {
      return [&, worker = Worker(*this, tasks)](int64_t begin, int64_t /*end*/) mutable {
        worker.run(tasks[static_cast<size_t>(begin)]);
      };
    });
  }

 private:
  void write_rows() const {
    const AttentionShape& shape = rule_.shape;
    for (const KvSequence& sequence : rows_.sequences) {
      at::parallel_for(0, sequence.rows, 32, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t place = sequence.past + row;
          const Q* key = qkv_ + (sequence.first_row + row) * columns_ + shape.heads * dim_;
          for (int64_t kv = 0; kv < shape.kv_heads; ++kv, key += dim_)
            cache_.write(sequence.blocks[static_cast<size_t>(place / rows_.block)], place % rows_.block, kv, key,
                         key + shape.kv_heads * dim_);
        }
      });
    }
  }

  // Returns whether keys and values are not copied: it would take longer than it saves.
  bool reads_in_place(const CachedTask& task) const { return task.has_few_rows() && cache_.has_chunks(); }

  // A tile, and its sums over the keys so far.
  struct State {
    A largest[kQueries], sum[kQueries];
    A *queries, *mixed;  // [queries, padded(head_dim)]
  };

  // The buffers of a thread.
  class Worker {
   public:
    // `tasks`: those that it may get.
    Worker(const CachedAttention& of, const std::vector<CachedTask>& tasks) : of_(of) {
      int64_t tiles = 0, rows = 0;
      bool copies = false;
      for (const CachedTask& task : tasks) {
        tiles = std::max(tiles, std::ssize(task.tiles));
        for (const CachedTile& tile : task.tiles) rows = std::max(rows, tile.count());
        copies = copies || !of.reads_in_place(task);
      }
      const int64_t of_scores = rows * kScoreRow, of_keys = copies ? kKeys * of.dim_ : 0, of_values = copies ? kKeys * row_ : 0;
      scores_ = scratch_.take(of_scores + of_keys + of_values + 2 * tiles * rows * row_);
      keys_ = scores_ + of_scores;
      values_ = keys_ + of_keys;
      states_.resize(static_cast<size_t>(tiles));
      A* next = values_ + of_values;
      for (State& state : states_) {
        for (A* State::*part : {&State::queries, &State::mixed}) state.*part = std::exchange(next, next + rows * row_);
      }
    }

    void run(const CachedTask& task) {
      int64_t most = 0;
      for (size_t i = 0; i < task.tiles.size(); ++i) {
        begin(states_[i], task.tiles[i]);
        most = std::max(most, task.tiles[i].visible.end - task.tiles[i].visible.begin);
      }
      loaded_ = {0, 0};
      for (int64_t first = 0; first < most; first += kKeys) {
        for (size_t i = 0; i < task.tiles.size(); ++i) {
          const TileRange visible = task.tiles[i].visible;
          const int64_t begin = visible.begin + first;
          if (begin < visible.end)
            add_keys(states_[i], task, task.tiles[i], {begin, std::min(begin + kKeys, visible.end)}, first == 0);
        }
      }
      for (size_t i = 0; i < task.tiles.size(); ++i) store(states_[i], task.tiles[i]);
    }

   private:
    void begin(State& state, const CachedTile& tile) {
      std::fill_n(state.largest, kQueries, -std::numeric_limits<A>::infinity());
      std::fill_n(state.sum, kQueries, A(0));
      for (int64_t i = 0; i < tile.rows.count; ++i) {
        const Q* from = of_.qkv_ + (tile.rows.begin + i) * of_.columns_ + tile.heads.begin * of_.dim_;
        tile::load(of_.isa_, state.queries + i * tile.heads.count * row_, from, of_.dim_, tile.heads.count, of_.dim_, scale_);
      }
    }

    // Reads as many keys from `range.begin` on as a tile of the task may see.
    void load(const CachedTask& task, TileRange range) {
      if (loaded_.begin == range.begin && loaded_.end >= range.end) return;
      int64_t end = range.end;
      for (const CachedTile& tile : task.tiles) {
        if (tile.visible.begin % kKeys == range.begin % kKeys)
          end = std::max(end, std::min(range.begin + kKeys, tile.visible.end));
      }
      of_.cache_.read(of_.isa_, keys_, values_, *task.sequence, task.kv, range.begin, end - range.begin);
      loaded_ = {range.begin, end};
    }

    void add_keys(State& state, const CachedTask& task, const CachedTile& tile, TileRange keys, bool is_first) {
      if (of_.reads_in_place(task)) return add_few_rows(state, task, tile, keys, is_first);
      load(task, keys);
      const int64_t rows = tile.count(), count = keys.end - keys.begin, dim = of_.dim_;
      tile::multiply<A>(
          of_.isa_, {scores_, kScoreRow, state.queries, row_, 1, keys_, kPanel, kPanel * dim, rows, padded(count), dim, false});
      weigh(state, tile, keys, is_first);
      tile::multiply<A>(of_.isa_,
                        {state.mixed, row_, scores_, kScoreRow, 1, values_, row_, kPanel, rows, row_, count, !is_first});
    }

    // The same sums in the same order, without copies of the keys and values.
    void add_few_rows(State& state, const CachedTask& task, const CachedTile& tile, TileRange keys, bool is_first) {
      if constexpr (!CacheBlocksView<T>::kHasScales) {
        const int64_t rows = tile.count(), count = keys.end - keys.begin, dim = of_.dim_;
        const T *of_keys[kKeys / tile::kChunk], *of_values[kKeys / tile::kChunk];
        of_.cache_.chunks(of_keys, of_values, *task.sequence, task.kv, keys.begin, count);
        tile::multiply_keys<A, T>(
            of_.isa_, {scores_, kScoreRow, state.queries, row_, of_keys, of_.cache_.key_stride(), rows, count, dim, false});
        weigh(state, tile, keys, is_first);
        tile::multiply_values<A, T>(of_.isa_,
                                    {state.mixed, row_, scores_, kScoreRow, of_values, dim, rows, count, dim, !is_first});
      }
    }

    // Turns the scores of a tile into weights.
    void weigh(State& state, const CachedTile& tile, TileRange keys, bool is_first) {
      tile::softmax<A>(of_.isa_, scores_, kScoreRow, tile.count(), mask(tile, keys),
                       {state.largest, state.sum, is_first ? nullptr : state.mixed, row_});
    }

    tile::AttentionMask mask(const CachedTile& tile, TileRange keys) const {
      const int64_t count = keys.end - keys.begin;
      tile::AttentionMask mask{.keys = count,
                               .first = {},
                               .end = {},
                               .query_segments = nullptr,
                               .key_segments = nullptr,
                               .keep = nullptr,
                               .keep_row = 0,
                               .keep_scale = 1};
      for (int64_t i = 0; i < tile.count(); ++i) {
        const int64_t place = tile.place + i / tile.heads.count;
        mask.first[i] = std::max<int64_t>(of_.rule_.sees.first_key(place) - keys.begin, 0);
        mask.end[i] = std::clamp<int64_t>(place + 1 - keys.begin, 0, count);
      }
      return mask;
    }

    void store(const State& state, const CachedTile& tile) const {
      A reciprocal[kQueries];
      for (int64_t i = 0; i < tile.count(); ++i) reciprocal[i] = 1 / state.sum[i];
      const int64_t out_columns = of_.rule_.shape.heads * of_.dim_;
      for (int64_t i = 0; i < tile.rows.count; ++i) {
        Q* to = of_.out_ + (tile.rows.begin + i) * out_columns + tile.heads.begin * of_.dim_;
        const int64_t first = i * tile.heads.count;
        tile::store(of_.isa_, to, of_.dim_, state.mixed + first * row_, tile.heads.count, of_.dim_, reciprocal + first, A(1));
      }
    }

    static constexpr int64_t kScoreRow = kKeys + tile::kChunk;

    const CachedAttention& of_;
    const int64_t row_ = padded(of_.dim_);  // elements of a row of queries, values or weighted sums
    const A scale_ = static_cast<A>(1 / std::sqrt(static_cast<double>(of_.dim_)));
    Scratch<A> scratch_{at::kCPU};
    A *keys_, *values_, *scores_;
    std::vector<State> states_;
    TileRange loaded_{0, 0};  // the keys of the task that `keys_` and `values_` have
  };

  const AttentionRule& rule_;
  const CachedRows& rows_;
  const Isa isa_;
  const CacheBlocksView<T> cache_;
  const int64_t dim_, columns_;
  const Q* qkv_;
  Q* out_;
};

// Calls body(Q{}, T{}, A{}) for the dtypes of the rows and the cache.
template <class Body>
void for_cache_dtypes(const at::Tensor& qkv, const at::Tensor& cache, const Body& body) {
  const auto with_cache = [&]<class Q, class A>(Q q, A a) {
    if (cache.scalar_type() == at::kChar) return body(q, int8_t{}, a);
    if (cache.scalar_type() != qkv.scalar_type())
      misuse("the rows are {}, and the cache of keys and values is {}: it must have their dtype, or int8", describe(qkv),
             describe(cache));
    body(q, q, a);
  };
  switch (qkv.scalar_type()) {
    case at::kFloat:
      return with_cache(float{}, float{});
    case at::kDouble:
      return with_cache(double{}, double{});
    case at::kBFloat16:
      return with_cache(c10::BFloat16{}, float{});
    case at::kHalf:
      return with_cache(c10::Half{}, float{});
    default:
      misuse("attention computes in float16, bfloat16, float32 or float64, got {}", describe(qkv));
  }
}

}  // namespace

at::Tensor attention_cached(const at::Tensor& qkv, const AttentionRule& rule, const CachedRows& rows, Isa isa) {
  const at::Tensor out = at::empty({1, qkv.size(1), rule.shape.heads * rule.shape.head_dim}, qkv.options());
  for_cache_dtypes(qkv, rows.layer.keys,
                   [&]<class Q, class T, class A>(Q, T, A) { CachedAttention<Q, T, A>(qkv, out, rule, rows, isa).run(); });
  return out;
}

}  // namespace zt::nn
