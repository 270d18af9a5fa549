#include "packed/gemm_result.h"

#include "zt/base/float16.h"

namespace zt::packed {

namespace {

// Numbers [rows][stride], of which `columns` per row are used.
struct Totals {
  float* first;
  int64_t stride, rows, columns;

  // Calls body(number, element) for all numbers and elements of a matrix of T. `elements`: the first one.
  template <class T, class Body>
  void with(T* elements, int64_t elements_stride, const Body& body) const {
    for (int64_t i = 0; i < rows; ++i) {
      float* const numbers = first + i * stride;
      T* const beside = elements + i * elements_stride;
      for (int64_t j = 0; j < columns; ++j) body(numbers[j], beside[j]);
    }
  }
};

// Adds the elements of `addend` from [row, column] on. Its row stride is `stride`, which is 0 for a vector.
template <class T>
void add_as(const Totals& totals, const at::Tensor& addend, int64_t stride, int64_t row, int64_t column) {
  totals.with(static_cast<const T*>(addend.const_data_ptr()) + row * stride + column, stride,
              [](float& number, T element) { number += widen(element); });
}

void add(const Totals& totals, const at::Tensor& addend, int64_t stride, int64_t row, int64_t column) {
  if (!addend.defined()) return;
  if (addend.scalar_type() == at::kFloat) add_as<float>(totals, addend, stride, row, column);
  else if (addend.scalar_type() == at::kBFloat16) add_as<c10::BFloat16>(totals, addend, stride, row, column);
  else add_as<c10::Half>(totals, addend, stride, row, column);
}

template <class T>
void round_to(const Totals& totals, const at::Tensor& out, int64_t row, int64_t column) {
  totals.with(static_cast<T*>(out.mutable_data_ptr()) + row * out.stride(0) + column, out.stride(0),
              [](float number, T& element) { element = narrow<T>(number); });
}

}  // namespace

void GemmResult::write(float* numbers, int64_t stride, int64_t rows, int64_t columns, int64_t row, int64_t column) const {
  const Totals totals{numbers, stride, rows, columns};
  add(totals, addends_.bias, 0, row, column);
  if (addends_.residual.defined()) add(totals, addends_.residual, addends_.residual.stride(0), row, column);
  if (out_.scalar_type() == at::kFloat) round_to<float>(totals, out_, row, column);
  else if (out_.scalar_type() == at::kBFloat16) round_to<c10::BFloat16>(totals, out_, row, column);
  else round_to<c10::Half>(totals, out_, row, column);
}

}  // namespace zt::packed
