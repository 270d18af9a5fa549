// Compiled with -O3 and without the precompiled header, so that the compiler vectorizes these loops.
#include "reduce_tree.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "zt/base/error.h"
#include "zt/base/float16.h"
#include "zt/base/tensor.h"

// The compiler makes one version of a function per instruction set, and the loader picks one. Sanitizers do not support this.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define ZT_CLONES
#endif

namespace zt::comm {

namespace {

// Elements per block. A block goes through the whole tree at once, so that the partial sums stay in the L1 cache.
constexpr int64_t kBlock = 1024;

template <ReduceOp op, class A>
inline A apply(A a, A b) {
  if constexpr (op == ReduceOp::max) {
    return a > b || a != a ? a : b;
  } else if constexpr (op == ReduceOp::min) {
    return a < b || a != a ? a : b;
  } else if constexpr (std::is_same_v<A, bool>) {
    return op == ReduceOp::sum ? a | b : a & b;
  } else if constexpr (std::is_integral_v<A>) {
    using Wrapping = std::common_type_t<unsigned, std::make_unsigned_t<A>>;
    const auto x = static_cast<Wrapping>(a), y = static_cast<Wrapping>(b);
    return static_cast<A>(op == ReduceOp::sum ? x + y : x * y);
  } else {
    return op == ReduceOp::sum ? a + b : a * b;
  }
}

template <ReduceOp op, class Out, class A, class B>
ZT_CLONES void combine(Out* out, const A* a, const B* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = narrow<Out>(apply<op>(widen(a[i]), widen(b[i])));
}

// Requires count <= kBlock. Writes an element of `out` only after the element was read from all sources.
template <ReduceOp op, class T, class Out>
void tree(Out* out, const T* const* sources, int width, int64_t count) {
  using A = Wide<T>;
  if (width == 2) return combine<op>(out, sources[0], sources[1], count);
  const int left_width = static_cast<int>(std::bit_floor(static_cast<unsigned>(width - 1)));
  A left[kBlock];
  tree<op, T, A>(left, sources, left_width, count);
  if (width - left_width == 1) return combine<op>(out, static_cast<const A*>(left), sources[left_width], count);
  A right[kBlock];
  tree<op, T, A>(right, sources + left_width, width - left_width, count);
  combine<op>(out, static_cast<const A*>(left), static_cast<const A*>(right), count);
}

template <ReduceOp op, class T>
void reduce_all(T* out, std::span<const void* const> sources, int64_t count) {
  const int width = static_cast<int>(sources.size());
  std::array<const T*, 8> few{};
  std::vector<const T*> many(sources.size() > few.size() ? sources.size() : 0);
  const T** block = many.empty() ? few.data() : many.data();
  for (int64_t first = 0; first < count; first += kBlock) {
    for (int s = 0; s < width; ++s) block[s] = static_cast<const T*>(sources[s]) + first;
    tree<op, T, T>(out + first, block, width, std::min(kBlock, count - first));
  }
}

template <class T>
void reduce_typed(ReduceOp op, void* out, std::span<const void* const> sources, int64_t count) {
  auto* typed = static_cast<T*>(out);
  switch (op) {
    case ReduceOp::sum:
      return reduce_all<ReduceOp::sum, T>(typed, sources, count);
    case ReduceOp::max:
      return reduce_all<ReduceOp::max, T>(typed, sources, count);
    case ReduceOp::min:
      return reduce_all<ReduceOp::min, T>(typed, sources, count);
    case ReduceOp::product:
      return reduce_all<ReduceOp::product, T>(typed, sources, count);
  }
}

using Reducer = void (*)(ReduceOp, void*, std::span<const void* const>, int64_t);

Reducer reducer(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return reduce_typed<float>;
    case at::kDouble:
      return reduce_typed<double>;
    case at::kHalf:
      return reduce_typed<c10::Half>;
    case at::kBFloat16:
      return reduce_typed<c10::BFloat16>;
    case at::kByte:
      return reduce_typed<uint8_t>;
    case at::kChar:
      return reduce_typed<int8_t>;
    case at::kShort:
      return reduce_typed<int16_t>;
    case at::kUInt16:
      return reduce_typed<uint16_t>;
    case at::kInt:
      return reduce_typed<int32_t>;
    case at::kUInt32:
      return reduce_typed<uint32_t>;
    case at::kLong:
      return reduce_typed<int64_t>;
    case at::kUInt64:
      return reduce_typed<uint64_t>;
    case at::kBool:
      return reduce_typed<bool>;
    default:
      return nullptr;
  }
}

}  // namespace

bool is_reducible(at::ScalarType dtype) {
  return reducer(dtype) != nullptr;
}

void reduce_tree(at::ScalarType dtype, ReduceOp op, void* out, std::span<const void* const> sources, int64_t count) {
  if (count == 0) return;
  if (sources.size() == 1) {
    std::memmove(out, sources[0], static_cast<size_t>(count) * c10::elementSize(dtype));
    return;
  }
  const Reducer reduce = reducer(dtype);
  if (!reduce) misuse("tensors of type {} cannot be reduced: convert to a float or integer type", dtype_name(dtype));
  reduce(op, out, sources, count);
}

}  // namespace zt::comm
