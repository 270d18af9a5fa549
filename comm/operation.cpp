#include "operation.h"

#include <fmt/format.h>

#include "zt/tensor.h"

namespace zt::comm {

std::string Group::who(int group_rank) const {
  return fmt::format("rank {} (world rank {})", group_rank, ranks[group_rank]);
}

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                                           "scatter",    "all_to_all",     "send",       "recv",      "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "max", "min", "product"};
  return kNames[static_cast<size_t>(op)];
}

const at::Tensor& Operation::any() const {
  static const at::Tensor none;
  for (const auto* list : {&in, &out}) {
    if (!list->empty() && list->front().defined()) return list->front();
  }
  return none;
}

std::string Operation::text(const Group& group) const {
  if (kind == Kind::barrier) return "barrier";
  const at::Tensor& tensor = any();
  std::string what = tensor.defined() ? fmt::format("{}[{}]", dtype_name(tensor.scalar_type()), tensor.numel()) : "nothing";
  const size_t count = std::max(in.size(), out.size());
  if (count > 1) what += fmt::format(" and {} more tensors", count - 1);
  switch (kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      return fmt::format("{} ({} of {})", name_of(kind), name_of(reduce), what);
    case Kind::reduce:
      return fmt::format("reduce ({} of {} to {})", name_of(reduce), what, group.who(peer));
    case Kind::send:
      return fmt::format("send ({} to {})", what, group.who(peer));
    case Kind::broadcast:
    case Kind::scatter:
    case Kind::recv:
      return fmt::format("{} ({} from {})", name_of(kind), what, group.who(peer));
    case Kind::gather:
      return fmt::format("gather ({} to {})", what, group.who(peer));
    default:
      return fmt::format("{} ({})", name_of(kind), what);
  }
}

}  // namespace zt::comm
