#include "shm/plans.h"

#include <algorithm>
#include <cstring>

#include "host/algorithms.h"
#include "zt/error.h"

namespace zt::comm {

namespace {

using Offsets = std::vector<int64_t>;  // begins of the parts for each rank, and the end; bytes

Offsets offsets_of(const Team& team, int rank) {
  Offsets offsets(static_cast<size_t>(team.size()) + 1);
  std::memcpy(offsets.data(), team.notice(rank).data.data(), offsets.size() * sizeof(int64_t));
  return offsets;
}

Range part(const Offsets& offsets, int rank) {
  const auto r = static_cast<size_t>(rank);
  return {static_cast<size_t>(offsets[r]), static_cast<size_t>(offsets[r + 1] - offsets[r])};
}

// Each rank gives its whole buffer of `bytes` to the readers.
Pull alike(size_t bytes, int size) {
  Pull pull;
  pull.is_alike = true;
  pull.gives.assign(static_cast<size_t>(size), {0, bytes});
  pull.takes.assign(static_cast<size_t>(size), {});
  pull.longest = bytes;
  return pull;
}

// Parts of `bytes` each: part r is for rank r, from whoever has a source.
Pull in_parts(size_t bytes, int rank, int size) {
  Pull pull;
  for (int r = 0; r < size; ++r) pull.gives.push_back({static_cast<size_t>(r) * bytes, bytes});
  pull.takes.assign(static_cast<size_t>(size), {static_cast<size_t>(rank) * bytes, bytes});
  pull.longest = bytes;
  return pull;
}

void add_up(Pull& pull, const Operation& operation, char* sum) {
  pull.sum = sum;
  pull.dtype = operation.in[0].scalar_type();
  pull.reduce = operation.reduce;
}

Pull plan_all_to_all(const Operation& operation, const Team& team) {
  Pull pull;
  const auto element = static_cast<int64_t>(operation.in[0].element_size());
  pull.source = bytes_of(operation.in[0]);
  char* target = bytes_of(operation.out[0]);
  for (int r = 0; r < team.size(); ++r) {
    const Offsets theirs = offsets_of(team, r);
    const int64_t expected = operation.out_splits[static_cast<size_t>(r)] * element;
    pull.gives.push_back(part(offsets_of(team, team.rank()), r));
    pull.takes.push_back(part(theirs, team.rank()));
    if (static_cast<int64_t>(pull.takes.back().bytes) != expected) {
      fault("{} gives {} bytes where {} expects {}: do the splits of the ranks belong together?", team.group().who(r),
            pull.takes.back().bytes, team.group().who(team.rank()), expected);
    }
    pull.targets.push_back(target);
    target += expected;
    for (int reader = 0; reader < team.size(); ++reader) pull.longest = std::max(pull.longest, part(theirs, reader).bytes);
  }
  return pull;
}

}  // namespace

Call call_of(const Operation& operation) {
  const at::Tensor& tensor = operation.any();
  Call call{.kind = operation.kind, .peer = operation.peer};
  if (operation.kind == Kind::barrier) return call;
  call.dtype = tensor.scalar_type();
  const bool is_sum =
      operation.kind == Kind::all_reduce || operation.kind == Kind::reduce_scatter || operation.kind == Kind::reduce;
  if (is_sum) call.reduce = operation.reduce;
  // Of scatter every rank has `out`, of all others that have an `in` every rank has that.
  if (operation.kind == Kind::scatter || operation.kind == Kind::broadcast) call.count = operation.out[0].numel();
  else if (operation.kind != Kind::all_to_all) call.count = operation.in[0].numel();
  return call;
}

bool is_inline(const Operation& operation, int size) {
  const Call call = call_of(operation);
  const size_t bytes = static_cast<size_t>(call.count) * c10::elementSize(call.dtype);
  if (operation.kind == Kind::all_to_all) return false;
  return bytes * (operation.kind == Kind::scatter ? static_cast<size_t>(size) : 1) <= kInlineBytes;
}

void write_splits(const Operation& operation, Notice& notice) {
  const auto element = static_cast<int64_t>(operation.in[0].element_size());
  Offsets offsets{0};
  for (const int64_t split : operation.in_splits) offsets.push_back(offsets.back() + split * element);
  std::memcpy(notice.data.data(), offsets.data(), offsets.size() * sizeof(int64_t));
}

Pull plan(const Operation& operation, const Team& team) {
  const int size = team.size(), rank = team.rank(), root = operation.peer;
  const bool is_root = rank == root;
  const at::Tensor& in = operation.in.empty() ? operation.out[0] : operation.in[0];
  const at::Tensor out = operation.out.empty() ? at::Tensor() : operation.out[0];
  Pull pull;
  switch (operation.kind) {
    case Kind::all_gather:
    case Kind::gather:
      pull = alike(in.nbytes(), size);
      pull.source = bytes_of(in);
      pull.targets.assign(static_cast<size_t>(size), nullptr);
      for (int r = 0; r < size && (operation.kind == Kind::all_gather || is_root); ++r) {
        pull.takes[static_cast<size_t>(r)] = {0, in.nbytes()};
        pull.targets[static_cast<size_t>(r)] = bytes_of(out) + static_cast<size_t>(r) * in.nbytes();
      }
      return pull;
    case Kind::broadcast:
      pull = alike(out.nbytes(), size);
      pull.source = is_root ? bytes_of(out) : nullptr;
      pull.takes[static_cast<size_t>(root)] = {0, is_root ? 0 : out.nbytes()};
      pull.targets.assign(static_cast<size_t>(size), bytes_of(out));
      return pull;
    case Kind::scatter:
      pull = in_parts(out.nbytes(), rank, size);
      pull.source = is_root ? bytes_of(in) : nullptr;
      for (int r = 0; r < size; ++r) {
        if (r != root) pull.takes[static_cast<size_t>(r)] = {};
      }
      pull.targets.assign(static_cast<size_t>(size), bytes_of(out));
      return pull;
    case Kind::reduce:
      pull = alike(in.nbytes(), size);
      pull.source = bytes_of(in);
      pull.takes.assign(static_cast<size_t>(size), {0, in.nbytes()});
      add_up(pull, operation, is_root ? bytes_of(out) : nullptr);
      return pull;
    case Kind::reduce_scatter:
      pull = in_parts(out.nbytes(), rank, size);
      pull.source = bytes_of(in);
      add_up(pull, operation, bytes_of(out));
      return pull;
    case Kind::all_to_all:
      return plan_all_to_all(operation, team);
    default:
      fault("{} has no plan", name_of(operation.kind));
  }
}

}  // namespace zt::comm
