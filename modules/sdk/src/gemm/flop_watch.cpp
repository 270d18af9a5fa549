#include "zt/gemm/flop_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <string_view>
#include <utility>

namespace zt {

namespace {

thread_local double* flops_of_watch = nullptr;  // the sum of this thread's watch; null means there is none

// Returns 2 m n k of a GEMM, times the length of the batch.
double product_flops(const at::Tensor& a, const at::Tensor& b) {
  const double columns = b.dim() > 1 ? static_cast<double>(b.size(-1)) : 1;
  return 2 * static_cast<double>(a.numel()) * columns;
}

// Counts a GEMM of ATen whose operands are on meta.
std::unique_ptr<at::ObserverContext> note_product(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const bool adds = name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv" || name == "aten::addbmm";
  const bool multiplies = adds || name == "aten::mm" || name == "aten::bmm" || name == "aten::mv";
  const size_t first = adds ? 1 : 0;
  if (!multiplies || call.inputs().size() < first + 2) return nullptr;
  const c10::IValue &a = call.inputs()[first], &b = call.inputs()[first + 1];
  if (a.isTensor() && b.isTensor() && a.toTensor().is_meta()) count_flops(product_flops(a.toTensor(), b.toTensor()));
  return nullptr;
}

}  // namespace

struct FlopWatch::Callback {
  double sum = 0;
  at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(note_product).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  ~Callback() { at::removeCallback(handle); }
};

FlopWatch::FlopWatch() : callback_(std::make_unique<Callback>()) {
  flops_of_watch = &callback_->sum;
}

FlopWatch::~FlopWatch() {
  flops_of_watch = nullptr;
}

double FlopWatch::take() {
  return std::exchange(callback_->sum, 0);
}

void count_flops(double flops) {
  if (flops_of_watch) *flops_of_watch += flops;
}

}  // namespace zt
