#include "call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "group.h"
#include "zt/base/tensor.h"

namespace zt::comm {

const char* name_of(CallKind kind) {
  static constexpr const char* kNames[kCallKinds] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                     "reduce",     "gather",         "scatter",    "all_to_all",
                                                     "send",       "recv",           "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "max", "min", "product"};
  return kNames[static_cast<size_t>(op)];
}

namespace {

// Returns "2 tensors of 4 + 4 float32". For a longer list the text has the first lengths and the checksum of all, so that lists
// which differ further on have different texts.
std::string list_text(const Call& call) {
  const auto shown = std::min(static_cast<size_t>(call.tensors), kFirstLengths);
  const auto begin = call.first_lengths.begin();
  const std::string lengths = fmt::format("{}", fmt::join(begin, begin + shown, " + "));
  if (shown == static_cast<size_t>(call.tensors))
    return fmt::format("{} tensors of {} {}", call.tensors, lengths, dtype_name(call.dtype));
  return fmt::format("{} tensors of {} + ... = {} {} (checksum of the lengths {:08x})", call.tensors, lengths, call.count,
                     dtype_name(call.dtype), call.lengths);
}

}  // namespace

std::string Call::text(const std::string& peer_name) const {
  if (kind == CallKind::barrier) return "barrier";
  std::string text = tensors == 0                   ? fmt::format("{} of a message", name_of(kind))
                     : kind == CallKind::all_to_all ? fmt::format("all_to_all of {}", dtype_name(dtype))
                     : tensors > 1                  ? fmt::format("{} of a list of {}", name_of(kind), list_text(*this))
                                                    : fmt::format("{} of {} {}", name_of(kind), count, dtype_name(dtype));
  if (is_reduction(kind)) text += fmt::format(" ({})", name_of(reduce));
  if (kind == CallKind::reduce || kind == CallKind::gather || kind == CallKind::send) return text + " to " + peer_name;
  if (kind == CallKind::broadcast || kind == CallKind::scatter || kind == CallKind::recv) return text + " from " + peer_name;
  return text;
}

std::string Call::text(const Group& group) const {
  return text(peer < 0 ? "" : group.rank_name(peer));
}

}  // namespace zt::comm
