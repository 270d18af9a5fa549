// Reads and writes the keys and values of a cache on the CPU. T is the dtype of the cache's elements, A that of the arithmetic.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>

#include "cpu/tile.h"
#include "zt/base/isa.h"
#include "zt/model/kv_cache.h"

namespace zt::nn {

// The blocks of a KvLayer.
template <class T>
class CacheBlocksView {
 public:
  static constexpr bool kHasScales = std::is_same_v<T, int8_t>;

  explicit CacheBlocksView(const KvLayer& layer)
      : keys_(static_cast<T*>(layer.keys.mutable_data_ptr())),
        values_(static_cast<T*>(layer.values.mutable_data_ptr())),
        heads_(layer.values.size(1)),
        block_(layer.values.size(2)),
        dim_(layer.values.size(3)) {
    if constexpr (kHasScales) {
      key_scales_ = layer.key_scales.mutable_data_ptr<c10::Half>();
      value_scales_ = layer.value_scales.mutable_data_ptr<c10::Half>();
    }
  }

  // Writes the key and the value of one token and head, [head_dim] each. `to`: its block; `slot`: its place in the block.
  template <class Q>
  void write(int32_t to, int64_t slot, int64_t head, const Q* key, const Q* value) const {
    const int64_t at = to * heads_ + head;
    write_row(keys_ + at * dim_ * block_ + slot, block_, key, key_scales_ ? key_scales_ + at * block_ + slot : nullptr);
    write_row(values_ + (at * block_ + slot) * dim_, 1, value, value_scales_ ? value_scales_ + at * block_ + slot : nullptr);
  }

  // Returns whether chunks() applies.
  bool has_chunks() const { return !kHasScales && block_ % tile::kChunk == 0 && dim_ % tile::kChunk == 0; }

  // Writes where each tile::kChunk of a sequence's tokens [begin, begin + count) have their keys and values, as ChunkGemm takes
  // them. `begin` is a multiple of kPanel. Rows of keys are `key_stride()` apart, rows of values head_dim.
  void chunks(const T** keys, const T** values, const KvSequence& from, int64_t head, int64_t begin, int64_t count) const {
    for (int64_t place = begin; place < begin + count; place += tile::kChunk) {
      const int64_t at = from.blocks[static_cast<size_t>(place / block_)] * heads_ + head, slot = place % block_;
      *keys++ = keys_ + at * dim_ * block_ + slot;
      *values++ = values_ + (at * block_ + slot) * dim_;
    }
  }
  int64_t key_stride() const { return block_; }

  // Reads the keys and values of a sequence's tokens [begin, begin + count) for a head, as TileGemm takes them: `keys` in panels
  // of tile::kPanel tokens, [head_dim, kPanel] each, and `values` [count, padded(head_dim)]. `begin` is a multiple of kPanel.
  template <class A>
  void read(Isa isa, A* keys, A* values, const KvSequence& from, int64_t head, int64_t begin, int64_t count) const {
    for (int64_t token = 0; token < count;) {
      const int64_t place = begin + token, slot = place % block_, in_panel = token % tile::kPanel;
      const int64_t length = std::min({block_ - slot, tile::kPanel - in_panel, count - token});
      const int64_t at = from.blocks[static_cast<size_t>(place / block_)] * heads_ + head;
      prefetch(from, head, place / block_ + kAhead);
      A* panel = keys + (token - in_panel) * dim_ + in_panel;
      read_keys(isa, panel, at, slot, length);
      read_values(isa, values + token * tile::padded(dim_), at, slot, length);
      token += length;
    }
    // The columns of the last panel that no key fills are computed, but not used.
    const int64_t filled = count % tile::kPanel, chunk = tile::padded(filled);
    A* panel = keys + (count - filled) * dim_;
    for (int64_t d = 0; d < dim_ && filled > 0; ++d)
      std::fill(panel + d * tile::kPanel + filled, panel + d * tile::kPanel + chunk, A(0));
  }

 private:
  static constexpr int64_t kAhead = 1;  // blocks between the one that is read and the one that is fetched from memory

  // Blocks lie anywhere, so the processor does not fetch the next one by itself.
  void prefetch(const KvSequence& from, int64_t head, int64_t index) const {
    if (index >= std::ssize(from.blocks)) return;
    const int64_t first = (from.blocks[static_cast<size_t>(index)] * heads_ + head) * block_ * dim_;
    for (int64_t i = 0; i < block_ * dim_; i += kLine) {
      __builtin_prefetch(keys_ + first + i);
      __builtin_prefetch(values_ + first + i);
    }
  }

  static constexpr int64_t kLine = 64 / sizeof(T);

  // Rounds to nearest even. In int8 the largest number becomes 127 times the scale, or a little less where the scale is rounded.
  template <class Q>
  void write_row(T* to, int64_t stride, const Q* from, c10::Half* scale) const {
    if constexpr (kHasScales) {
      float largest = 0;
      for (int64_t d = 0; d < dim_; ++d) {
        const float size = std::abs(static_cast<float>(from[d]));
        largest = size <= largest ? largest : size;  // nan stays
      }
      *scale = static_cast<c10::Half>(largest / 127);
      const float by = static_cast<float>(*scale);
      for (int64_t d = 0; d < dim_; ++d) {
        const float quotient = by > 0 ? std::nearbyint(static_cast<float>(from[d]) / by) : 0;
        to[d * stride] = static_cast<int8_t>(std::clamp(quotient, -127.0F, 127.0F));
      }
    } else {
      for (int64_t d = 0; d < dim_; ++d) to[d * stride] = from[d];
    }
  }

  template <class A>
  void read_keys(Isa isa, A* to, int64_t at, int64_t slot, int64_t count) const {
    A scales[tile::kPanel];
    if constexpr (kHasScales) std::copy_n(key_scales_ + at * block_ + slot, count, scales);
    tile::load_columns(isa, to, tile::kPanel, keys_ + at * dim_ * block_ + slot, block_, dim_, count,
                       kHasScales ? scales : nullptr);
  }

  template <class A>
  void read_values(Isa isa, A* to, int64_t at, int64_t slot, int64_t count) const {
    const T* from = values_ + (at * block_ + slot) * dim_;
    if constexpr (kHasScales) {
      for (int64_t i = 0; i < count; ++i)
        tile::load(isa, to + i * tile::padded(dim_), from + i * dim_, dim_, 1, dim_,
                   static_cast<A>(value_scales_[at * block_ + slot + i]));
    } else {
      tile::load(isa, to, from, dim_, count, dim_, A(1));
    }
  }

  T *keys_, *values_;
  c10::Half *key_scales_ = nullptr, *value_scales_ = nullptr;
  int64_t heads_, block_, dim_;
};

}  // namespace zt::nn
