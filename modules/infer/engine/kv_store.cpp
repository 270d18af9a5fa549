#include "engine/kv_store.h"

#include "zt/base/tensor.h"

namespace zt::infer {

namespace {

constexpr int64_t kScaleBytes = 2;

}  // namespace

int64_t block_bytes(const KvShapes& shapes, const CacheOptions& options, at::ScalarType params) {
  const bool is_int8 = options.dtype == CacheDtype::int8;
  int64_t bytes = 0;
  for (const auto& [position, shape] : shapes)
    bytes += 2 * shape.heads * options.block * (is_int8 ? shape.head_dim + kScaleBytes : shape.head_dim * size_of(params));
  return bytes;
}

KvStore::KvStore(const KvShapes& shapes, const CacheOptions& options, at::ScalarType params, int32_t blocks, at::Device device)
    : blocks_(blocks), block_(options.block) {
  const bool is_int8 = options.dtype == CacheDtype::int8;
  const auto made = [&](at::IntArrayRef sizes, at::ScalarType dtype) {
    return large_zeros(sizes, at::TensorOptions().dtype(dtype).device(device));
  };
  const at::ScalarType dtype = is_int8 ? at::kChar : params;
  for (const auto& [position, shape] : shapes) {
    KvLayer& layer = layers_[position];
    layer.keys = made({blocks, shape.heads, shape.head_dim, block_}, dtype);
    layer.values = made({blocks, shape.heads, block_, shape.head_dim}, dtype);
    if (!is_int8) continue;
    layer.key_scales = made({blocks, shape.heads, block_}, at::kHalf);
    layer.value_scales = made({blocks, shape.heads, block_}, at::kHalf);
  }
}

const KvLayer& KvStore::layer(int position) const {
  static const KvLayer kNone;
  const auto found = layers_.find(position);
  return found == layers_.end() ? kNone : found->second;
}

int64_t KvStore::bytes() const {
  int64_t bytes = 0;
  for (const auto& [position, layer] : layers_) {
    for (const at::Tensor& tensor : {layer.keys, layer.values, layer.key_scales, layer.value_scales}) {
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

}  // namespace zt::infer
