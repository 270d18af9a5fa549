// One memory of a rank besides its device's.
#pragma once

#include <memory>

#include "zt/execute/homes.h"

namespace zt::offload {

// Each function is that of Homes with its name, for one tier.
class TierMemory {
 public:
  virtual ~TierMemory() = default;
  virtual Work read(int64_t place, at::Tensor to) = 0;
  virtual Work write(int64_t place, at::Tensor from) = 0;
  virtual std::shared_ptr<KeptBytes> keep(int64_t place, int64_t bytes) = 0;
  virtual int64_t take(int64_t bytes) = 0;
  virtual void give_back(int64_t place, int64_t bytes) = 0;
};

}  // namespace zt::offload
