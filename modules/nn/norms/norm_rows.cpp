#include "norm_rows.h"

#include <numeric>

#include "cpu/kernels.h"
#include "cuda/device_call.h"
#include "cuda/device_norm.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// Vectors per block. The weight gradient is summed per block, then over the blocks in order, so the sum does not depend on the
// number of threads. Blocks are small, so that there is at least one per thread.
constexpr int64_t kVectorsPerBlock = 32;

// Returns the statistics of vector `vector` and the later ones.
template <class W>
kernels::NormStats<W> stats_at(const at::Tensor& stats, int64_t vector) {
  W* reciprocal = static_cast<W*>(stats.data_ptr()) + vector;
  return {stats.size(0) == 2 ? reciprocal + stats.size(1) : nullptr, reciprocal};
}

// Calls body(vector, place, count) for the vectors of the rows [begin, end) of a matrix: `count` vectors from number `vector` on
// lie one after the other from element `place` on.
template <class Body>
void for_runs(const RowParts& parts, int64_t columns, int64_t begin, int64_t end, const Body& body) {
  const int64_t rows = parts.count * parts.width == columns ? end - begin : 1;  // whole rows have no gaps between them
  for (int64_t row = begin; row < end; row += rows) body(row * parts.count, row * columns + parts.first, rows * parts.count);
}

// Writes the gradient of x, and those of weight and bias per block: dweight and dbias are [blocks, width]; each may be undefined.
void norm_backward_on_cpu(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias, const NormBackwardInputs& in,
                          int64_t rows_per_block) {
  const int64_t rows = in.x.size(0), columns = in.x.size(1), width = in.parts.width;
  for_dtype(in.x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    T* to = dx.data_ptr<T>();
    const T *dy = in.dy.const_data_ptr<T>(), *x = in.x.const_data_ptr<T>(), *w = in.weight.const_data_ptr<T>();
    const T* other = data_or_null<T>(in.beside);
    const auto part = [&](const at::Tensor& sums, int64_t block) {
      return sums.defined() ? sums.data_ptr<W>() + block * width : nullptr;
    };
    const auto run_block = [&](int64_t block) {
      const int64_t first = block * rows_per_block, last = std::min(first + rows_per_block, rows);
      for_runs(in.parts, columns, first, last, [&](int64_t vector, int64_t at, int64_t count) {
        kernels::norm_backward(to + at, part(dweight, block), part(dbias, block), dy + at, x + at, w,
                               other ? other + at : nullptr, stats_at<const W>(in.stats, vector), count, width);
      });
    };
    const int64_t blocks = (rows + rows_per_block - 1) / rows_per_block;
    for_rows(blocks, rows_per_block * in.parts.count * width, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) run_block(block);
    });
  });
}

// Returns where the vectors of a matrix with `columns` columns lie, for row algorithms whose pointers begin at the first vector.
device::RowPlaces device_places(const RowParts& parts, int64_t columns) {
  return parts.count * parts.width == columns ? device::RowPlaces{} : device::RowPlaces{parts.count, columns};
}

// Sums the rows of `parts` [rows, width] into `out` [1, width], in a fixed tree.
template <class W>
void sum_parts(const at::Tensor& out, at::Tensor parts) {
  while (parts.size(0) > 1) {
    const int64_t rows = device::sum_blocks(parts.size(0)), width = parts.size(1);
    const at::Tensor sums = rows == 1 ? out : at::empty({rows, width}, parts.options());
    on_gpu(parts, device::SumRows<W>{sums.data_ptr<W>(), parts.const_data_ptr<W>(), parts.size(0), rows, width});
    parts = sums;
  }
}

// Writes the gradient of x, and the sums of the gradients of weight and bias to dweight and dbias [1, width]; each may be
// undefined. They are sums over blocks of vectors, then over blocks of these sums, in a fixed order. Without rows, nothing is
// written.
void norm_backward_on_gpu(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias,
                          const NormBackwardInputs& in) {
  const int64_t rows = in.x.size(0) * in.parts.count, width = in.parts.width, blocks = device::sum_blocks(rows);
  if (rows == 0) return;
  // With one block, its sums are the result and are written directly.
  const auto parts_of = [&](const at::Tensor& sum) {
    return sum.defined() && blocks > 1 ? at::empty({blocks, width}, sum.options()) : sum;
  };
  const at::Tensor weight_parts = parts_of(dweight), bias_parts = parts_of(dbias);
  const device::RowPlaces places = device_places(in.parts, in.x.size(1));
  for_dtype(in.x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    const auto found = stats_at<const W>(in.stats, 0);
    const T *x = in.x.const_data_ptr<T>() + in.parts.first, *dy = in.dy.const_data_ptr<T>() + in.parts.first;
    const T *weight = in.weight.const_data_ptr<T>(), *other = data_or_null<T>(in.beside);
    if (other) other += in.parts.first;
    on_gpu(in.x, device::NormBackward<T>{dx.data_ptr<T>() + in.parts.first, dy, x, weight, other, found, rows, width, places});
    const auto data = [](const at::Tensor& sums) { return sums.defined() ? sums.data_ptr<W>() : nullptr; };
    on_gpu(in.x, device::NormParts<T>{data(weight_parts), data(bias_parts), dy, x, found, rows, blocks, width, places});
    if (dweight.defined()) sum_parts<W>(dweight, weight_parts);
    if (dbias.defined()) sum_parts<W>(dbias, bias_parts);
  });
}

// Returns `parts` [blocks, width] summed over the blocks, in ascending order.
at::Tensor sum_blocks(const at::Tensor& parts) {
  const int64_t blocks = parts.size(0), width = parts.size(1);
  std::vector<int64_t> ascending(blocks);
  std::iota(ascending.begin(), ascending.end(), 0);
  at::Tensor sum = at::zeros({width}, parts.options());
  for_dtype(parts, [&](auto zero) {
    using W = decltype(zero);
    for_rows(width, blocks, [&](int64_t begin, int64_t end) {
      kernels::add_rows(sum.data_ptr<W>() + begin, parts.const_data_ptr<W>() + begin, ascending.data(), blocks, width,
                        end - begin);
    });
  });
  return sum;
}

void add_to(const Context::Sink& sink, const at::Tensor& parts) {
  if (sink.view.defined()) sink.add(parts.is_cuda() ? parts[0] : sum_blocks(parts));
}

}  // namespace

at::Tensor norm_rows(const at::Tensor& out, const at::Tensor& x, const RowParts& parts, NormKind kind, const at::Tensor& weight,
                     const at::Tensor& bias, double eps) {
  const int64_t rows = x.size(0), columns = x.size(1), vectors = rows * parts.count, width = parts.width;
  const int64_t kinds = kind == NormKind::layernorm ? 2 : 1;
  const at::Tensor stats = at::empty({kinds, vectors}, x.options().dtype(wide_dtype(x.scalar_type())));
  if (vectors == 0) return stats;
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    T* to = out.data_ptr<T>();
    const T *w = weight.const_data_ptr<T>(), *b = data_or_null<T>(bias), *from = x.const_data_ptr<T>();
    if (on_gpu(x, device::NormForward<T>{to + parts.first, stats_at<W>(stats, 0), from + parts.first, w, b, eps, vectors, width,
                                         device_places(parts, columns)})) {
      return;
    }
    for_rows(rows, parts.count * width, [&](int64_t begin, int64_t end) {
      for_runs(parts, columns, begin, end, [&](int64_t vector, int64_t at, int64_t count) {
        kernels::norm(to + at, stats_at<W>(stats, vector), from + at, w, b, eps, count, width);
      });
    });
  });
  return stats;
}

void norm_rows_backward(const at::Tensor& dx, const NormBackwardInputs& in, const Context::Sink& weight,
                        const Context::Sink& bias) {
  const int64_t rows_per_block = std::max<int64_t>(1, kVectorsPerBlock / in.parts.count);
  const int64_t blocks = in.x.is_cuda() ? 1 : (in.x.size(0) + rows_per_block - 1) / rows_per_block;
  const auto empty_sums = [&](const Context::Sink& sink) {
    return sink.view.defined() ? at::zeros({blocks, in.parts.width}, in.stats.options()) : at::Tensor();
  };
  const at::Tensor dweight = empty_sums(weight), dbias = empty_sums(bias);
  if (in.x.is_cuda()) norm_backward_on_gpu(dx, dweight, dbias, in);
  else norm_backward_on_cpu(dx, dweight, dbias, in, rows_per_block);
  add_to(weight, dweight);
  add_to(bias, dbias);
}

}  // namespace zt::nn
