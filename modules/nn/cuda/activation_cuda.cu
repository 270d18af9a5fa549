#include "device_activation.h"
#include "device_launch.h"

namespace zt::nn::device {

ZT_RUN_ALL_ON_CUDA(GeluTanh)
ZT_RUN_ALL_ON_CUDA(GeluTanhBackward)
ZT_RUN_ALL_ON_CUDA(Swiglu)
ZT_RUN_ALL_ON_CUDA(SwigluBackward)

}  // namespace zt::nn::device
