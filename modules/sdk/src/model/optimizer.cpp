#include "zt/model/optimizer.h"

namespace zt {

Optimizer::~Optimizer() = default;
Schedule::~Schedule() = default;

void Optimizer::check(const ModelInfo&) const {}

ZT_DEFINE_OBJECT(Optimizer, "Optimizer")
ZT_DEFINE_OBJECT(Schedule, "Schedule")

}  // namespace zt
