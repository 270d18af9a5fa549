#include "checks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/reduce_tree.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

void check_allocation(const Group& group, at::IntArrayRef shape, at::ScalarType dtype) {
  const auto where = [&] { return fmt::format("allocate on axis '{}' (rank {} of {})", group.name, group.rank, group.size()); };
  const std::string text = fmt::format("{}", fmt::join(shape, ", "));
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) {
    if (size < 0) misuse("{}: the shape {{{}}} holds {}: a size cannot be negative", where(), text, size);
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      misuse("{}: the shape {{{}}} of {} is larger than any memory (2^63 bytes): was it meant to be split?", where(), text,
             dtype_name(dtype));
    }
  }
}

std::string Checks::where() const {
  return fmt::format("{} on axis '{}' (rank {} of {})", name_of(kind_), group_.name, group_.rank, group_.size());
}

void check_channel(const Group& group, const ChannelPlan& plan) {
  const std::string where = fmt::format("channel '{}' from rank {} to rank {} of axis '{}' (rank {} of {})", plan.name, plan.from,
                                        plan.to, group.name, group.rank, group.size());
  for (const int end : {plan.from, plan.to}) {
    if (end < 0 || end >= group.size())
      misuse("{}: {} is not a rank of this axis: ranks are 0 to {}", where, end, group.size() - 1);
  }
  if (plan.from == plan.to) misuse("{}: a channel needs two different ranks", where);
  if (group.rank != plan.from && group.rank != plan.to) misuse("{}: only its two ranks may make it", where);
  if (plan.depth < 1) misuse("{}: the depth must be at least 1, not {}", where, plan.depth);
}

void Checks::tensor(const char* name, const at::Tensor& tensor) const {
  if (!tensor.defined()) misuse("{}: '{}' is not a tensor, but this rank needs one", where(), name);
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    misuse("{}: '{}' is {}, which is not contiguous: copy the data first with contiguous()", where(), name, describe(tensor));
  }
  if (device_ && tensor.device() != *device_) {
    misuse("{}: '{}' is {}, but this communicator works on {} memory: move it there, or make the mesh with another backend",
           where(), name, describe(tensor), device_->str());
  }
}

void Checks::same_dtype(const at::Tensor& out, const at::Tensor& in) const {
  if (out.scalar_type() == in.scalar_type()) return;
  misuse("{}: 'out' is {} but 'in' is {}: communication does not convert, give both one type", where(), describe(out),
         describe(in));
}

void Checks::reducible(const at::Tensor& in) const {
  if (is_reducible(in.scalar_type())) return;
  misuse("{}: 'in' is {}, a type that cannot be reduced: convert to a float or integer type", where(), describe(in));
}

void Checks::counts(const char* longer_name, const at::Tensor& longer, const char* shorter_name, const at::Tensor& shorter,
                    int factor) const {
  if (longer.numel() == shorter.numel() * factor) return;
  const std::string wanted =
      factor == 1 ? "the same number of elements" : fmt::format("{} ranks x {} elements", factor, shorter.numel());
  misuse("{}: '{}' is {} and '{}' is {}: '{}' has {} elements, but needs {}", where(), longer_name, describe(longer),
         shorter_name, describe(shorter), longer_name, longer.numel(), wanted);
}

void Checks::overlap(const char* outer_name, const at::Tensor& outer, const char* inner_name, const at::Tensor& inner,
                     int part) const {
  const auto begin = [](const at::Tensor& t) { return reinterpret_cast<uintptr_t>(t.const_data_ptr()); };
  const auto end = [&](const at::Tensor& t) { return begin(t) + t.nbytes(); };
  if (outer.nbytes() == 0 || inner.nbytes() == 0 || outer.is_meta() || inner.is_meta()) return;
  if (begin(outer) >= end(inner) || begin(inner) >= end(outer)) return;
  if (part >= 0 && begin(inner) == begin(outer) + static_cast<size_t>(part) * inner.nbytes()) return;
  const std::string rule =
      part < 0    ? "this operation is never in place, give two tensors"
      : part == 0 ? fmt::format("'{}' may be '{}' itself and no other part of it", inner_name, outer_name)
                  : fmt::format("'{}' may be part {} of '{}' (this rank's) and no other", inner_name, part, outer_name);
  misuse("{}: '{}' and '{}' overlap in memory: {}", where(), outer_name, inner_name, rule);
}

void Checks::rank(const char* name, int rank) const {
  if (rank < 0 || rank >= group_.size())
    misuse("{}: {} {} is not a rank of this axis: ranks are 0 to {}", where(), name, rank, group_.size() - 1);
}

void Checks::peer(int peer) const {
  rank("peer", peer);
  if (peer == group_.rank) misuse("{}: rank {} cannot be its own peer: give the rank at the other end", where(), peer);
}

std::vector<int64_t> Checks::splits(const char* name, const at::Tensor& tensor, const std::vector<int64_t>& rows) const {
  const int size = group_.size();
  const int64_t dim = tensor.dim() > 0 ? tensor.size(0) : 1;
  std::vector<int64_t> parts = rows;
  if (parts.empty()) {
    if (dim % size != 0) {
      misuse("{}: dim 0 of '{}' has {} rows, which {} ranks do not divide (remainder {}): give '{}_splits'", where(), name, dim,
             size, dim % size, name);
    }
    parts.assign(static_cast<size_t>(size), dim / size);
  }
  if (static_cast<int>(parts.size()) != size) {
    misuse("{}: '{}_splits' has {} numbers, but needs one for each of {} ranks", where(), name, parts.size(), size);
  }
  int64_t sum = 0;
  for (const int64_t part : parts) {
    if (part < 0) misuse("{}: '{}_splits' holds {}: a number of rows cannot be negative", where(), name, part);
    sum += part;
  }
  if (sum != dim)
    misuse("{}: '{}_splits' adds up to {}, but '{}' is {} with {} rows", where(), name, sum, name, describe(tensor), dim);
  const int64_t row = dim > 0 ? tensor.numel() / dim : 0;
  for (int64_t& part : parts) part *= row;
  return parts;
}

void Checks::list(at::TensorList out, at::TensorList in) const {
  if (out.size() != in.size())
    misuse("{}: 'out' has {} tensors and 'in' has {}: give as many, as they go in pairs", where(), out.size(), in.size());
  for (const auto& tensor : in) {
    if (tensor.defined() && in[0].defined() && tensor.scalar_type() != in[0].scalar_type()) {
      misuse("{}: the list holds {} and {}: the tensors of a list must have one type, make one call per type", where(),
             describe(in[0]), describe(tensor));
    }
  }
}

}  // namespace zt::comm
