#include "device_launch.h"
#include "device_rows.h"

namespace zt::nn::device {

ZT_RUN_ALL_ON_CUDA(ScaleKept)
ZT_RUN_ALL_ON_CUDA(Rotate)
ZT_RUN_ALL_ON_CUDA(GatherRows)
ZT_RUN_ON_CUDA(ScatterRows<double, double>)
ZT_RUN_ON_CUDA(ScatterRows<float, float>)
ZT_RUN_ON_CUDA(ScatterRows<c10::BFloat16, c10::BFloat16>)
ZT_RUN_ON_CUDA(ScatterRows<c10::Half, c10::Half>)
ZT_RUN_ON_CUDA(ScatterRows<float, c10::BFloat16>)
ZT_RUN_ON_CUDA(ScatterRows<float, c10::Half>)
ZT_RUN_ON_CUDA(KeepMask)

}  // namespace zt::nn::device
