// The sums of squares of NORM on a GPU.
#include <ATen/Dispatch.h>
#include <ATen/ops/zeros.h>

#include "execute/norm/norm_cuda.h"
#include "execute/norm/norm_squares.h"
#include "zt/base/cuda_launch.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/execute/gradient_norm.h"

namespace zt {

at::Tensor squares_on_device(const at::Tensor& flat, int64_t begin, int64_t end) {
  check_squares(flat, begin, end);
  if (!flat.is_cuda()) misuse("squares_on_device reads the memory of a GPU, got {}", describe(flat));
#ifdef ZT_HAS_CUDA
  const at::Tensor words = at::zeros({ExactWords::kCount}, flat.options().dtype(at::kLong));
  launch_on(flat.device(), [&](void* stream) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, flat.scalar_type(), "squares_on_device", [&] {
      add_squares_cuda(flat.const_data_ptr<scalar_t>(), begin, end, words.data_ptr<int64_t>(), stream);
    });
  });
  return words;
#else
  misuse("the norm of {} is to be taken, but this build has no CUDA code: build ztoolkit where nvcc is found", describe(flat));
#endif
}

}  // namespace zt
