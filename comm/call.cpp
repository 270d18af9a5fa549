#include "call.h"

#include <fmt/format.h>

#include "zt/tensor.h"

namespace zt::comm {

const char* name_of(Kind kind) {
  static constexpr const char* kNames[kKinds] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                                                 "scatter",    "all_to_all",     "send",       "recv",      "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "max", "min", "product"};
  return kNames[static_cast<size_t>(op)];
}

std::string Call::text(const std::string& peer_name) const {
  if (kind == Kind::barrier) return "barrier";
  std::string text = kind == Kind::all_to_all ? fmt::format("all_to_all of {}", dtype_name(dtype))
                                              : fmt::format("{} of {} {}", name_of(kind), count, dtype_name(dtype));
  if (tensors > 1) text += fmt::format(" in {} tensors (lengths #{:08x})", tensors, lengths);
  if (is_reduction(kind)) text += fmt::format(" ({})", name_of(reduce));
  if (kind == Kind::reduce || kind == Kind::gather || kind == Kind::send) return text + " to " + peer_name;
  if (kind == Kind::broadcast || kind == Kind::scatter || kind == Kind::recv) return text + " from " + peer_name;
  return text;
}

}  // namespace zt::comm
