#include "staging.h"

#include <ATen/ops/empty.h>

#include "core/bytes.h"

namespace zt::comm {

char* Staging::get(size_t bytes) {
  if (!memory_.defined() || static_cast<size_t>(memory_.numel()) < bytes) {
    memory_ = at::Tensor();
    memory_ = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  }
  return bytes_of(memory_);
}

}  // namespace zt::comm
