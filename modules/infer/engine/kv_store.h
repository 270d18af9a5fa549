// The memory for keys and values of one rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "zt/base/words.h"
#include "zt/model/kv_cache.h"
#include "zt/model/layer.h"

namespace zt::infer {

enum class CacheDtype : uint8_t { params, int8 };
constexpr auto words_of(CacheDtype) {
  return std::array{"params", "int8"};
}

struct CacheOptions {
  double memory = 0.5;  // bytes; at most 1: a share of the memory that is free
  int64_t block = 16;   // tokens of a block
  CacheDtype dtype = CacheDtype::params;
  bool prefix = true;  // sequences that begin alike share blocks
};

// The keys and values that a rank keeps of a token, by the position of its layer in the model.
using KvShapes = std::map<int, KvShape>;

// Returns the bytes that one block takes on a rank. `params`: the dtype of the model's parameters.
int64_t block_bytes(const KvShapes& shapes, const CacheOptions& options, at::ScalarType params);

// Invariant: the tensors stay the same. Threads: the rank's thread only.
class KvStore final : public KvCache {
 public:
  // Allocates `blocks` blocks.
  KvStore(const KvShapes& shapes, const CacheOptions& options, at::ScalarType params, int32_t blocks, at::Device device);

  // Sets the sequences of the next run, by micro-batch.
  void set_sequences(std::vector<std::vector<KvSequence>> sequences) { sequences_ = std::move(sequences); }

  int64_t block() const override { return block_; }
  const std::vector<KvSequence>& sequences(int micro_batch) const override {
    return sequences_.at(static_cast<size_t>(micro_batch));
  }
  const KvLayer& layer(int position) const override;
  std::string class_axis() const override { return class_axis_; }
  // Sets the axis along which logits stay cut.
  void set_class_axis(std::string axis) { class_axis_ = std::move(axis); }
  int32_t blocks() const { return blocks_; }
  int64_t bytes() const;

 private:
  int32_t blocks_;
  int64_t block_;
  std::map<int, KvLayer> layers_;
  std::string class_axis_;
  std::vector<std::vector<KvSequence>> sequences_;
};

}  // namespace zt::infer
