#include "zt/comm/channel.h"

namespace zt {

ZT_DEFINE_OBJECT(Channel, "Channel")

Channel::~Channel() = default;

}  // namespace zt
