#include "device_launch.h"
#include "device_softmax.h"

namespace zt::nn::device {

ZT_RUN_ALL_ON_CUDA(SoftmaxLosses)
ZT_RUN_ALL_ON_CUDA(SoftmaxGradient)
ZT_RUN_ON_CUDA(SumAll)

}  // namespace zt::nn::device
