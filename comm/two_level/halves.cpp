#include "two_level/halves.h"

#include "zt/base/float16.h"

namespace zt::comm {

namespace {

template <class To, class From>
void convert(const at::Tensor& to, const at::Tensor& from) {
  To* out = to.mutable_data_ptr<To>();
  const From* in = from.const_data_ptr<From>();
  const int64_t count = from.numel();
  for (int64_t i = 0; i < count; ++i) out[i] = zt::narrow<To>(zt::widen(in[i]));
}

}  // namespace

void widen(const at::Tensor& wide, const at::Tensor& half) {
  if (half.scalar_type() == at::kHalf) convert<float, c10::Half>(wide, half);
  else convert<float, c10::BFloat16>(wide, half);
}

void narrow(const at::Tensor& half, const at::Tensor& wide) {
  if (half.scalar_type() == at::kHalf) convert<c10::Half, float>(half, wide);
  else convert<c10::BFloat16, float>(half, wide);
}

}  // namespace zt::comm
