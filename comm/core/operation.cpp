#include "operation.h"

#include <algorithm>

namespace zt::comm {

Call call_of(const Operation& operation) {
  Call call{.kind = operation.kind, .peer = operation.peer};
  if (is_reduction(call.kind)) call.reduce = operation.reduce;
  // The tensor that has the same length on every rank: `out` for scatter, broadcast and recv, `in` for all others.
  const bool has_out = call.kind == CallKind::scatter || call.kind == CallKind::broadcast || call.kind == CallKind::recv;
  const auto& tensors = has_out ? operation.out : operation.in;
  if (tensors.empty()) return call;
  call.dtype = tensors[0].scalar_type();
  call.tensors = static_cast<int32_t>(tensors.size());
  if (call.kind == CallKind::all_to_all) return call;
  const bool is_list = tensors.size() > 1;
  for (size_t i = 0; is_list && i < std::min(tensors.size(), kFirstLengths); ++i) call.first_lengths[i] = tensors[i].numel();
  for (const auto& tensor : tensors) {
    call.count += tensor.numel();
    if (is_list) call.lengths = (call.lengths ^ static_cast<uint32_t>(tensor.numel())) * 16777619U + 1;
  }
  return call;
}

}  // namespace zt::comm
