#include "device_launch.h"
#include "device_norm.h"

namespace zt::nn::device {

ZT_RUN_ALL_ON_CUDA(NormForward)
ZT_RUN_ALL_ON_CUDA(NormBackward)
ZT_RUN_ALL_ON_CUDA(NormParts)
ZT_RUN_ON_CUDA(SumRows<double>)
ZT_RUN_ON_CUDA(SumRows<float>)

}  // namespace zt::nn::device
