#include "shm/plans.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "messages/algorithms.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

// What a rank of an all_to_all gives to and expects of each rank, in bytes.
struct Splits {
  std::span<const int64_t> gives, expects;
  Range part_for(int rank) const {
    const auto begin = std::accumulate(gives.begin(), gives.begin() + rank, int64_t{0});
    return {static_cast<size_t>(begin), static_cast<size_t>(gives[static_cast<size_t>(rank)])};
  }
};

// At the end of a notice; what the rank gives, if it is little, at its begin.
size_t splits_begin(int size) {
  return kInlineBytes - 2 * static_cast<size_t>(size) * sizeof(int64_t);
}

Splits splits_of(const Team& team, int rank) {
  const auto size = static_cast<size_t>(team.size());
  const auto* numbers = reinterpret_cast<const int64_t*>(team.notice(rank).data.data() + splits_begin(team.size()));
  return {{numbers, size}, {numbers + size, size}};
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

// Every rank looks at all pairs: all find the same fault.
void check_splits(std::span<const Splits> splits, const Group& group) {
  for (size_t from = 0; from < splits.size(); ++from) {
    for (size_t to = 0; to < splits.size(); ++to) {
      const int64_t given = splits[from].gives[to], expected = splits[to].expects[from];
      if (given == expected) continue;
      fault("{} gives {} bytes where {} expects {}: do the splits of the ranks belong together?",
            group.rank_name(static_cast<int>(from)), given, group.rank_name(static_cast<int>(to)), expected);
    }
  }
}

Pull plan_all_to_all(const Operation& operation, const Team& team) {
  Pull pull;
  pull.source = bytes_of(operation.in[0]);
  char* target = bytes_of(operation.out[0]);
  c10::SmallVector<Splits, kFew> splits;
  for (int r = 0; r < team.size(); ++r) splits.push_back(splits_of(team, r));
  check_splits(splits, team.group());
  for (int r = 0; r < team.size(); ++r) {
    const Splits& theirs = splits[static_cast<size_t>(r)];
    pull.gives.push_back(splits[static_cast<size_t>(team.rank())].part_for(r));
    pull.takes.push_back(theirs.part_for(team.rank()));
    pull.targets.push_back(target);
    target += pull.takes.back().bytes;
    for (const int64_t bytes : theirs.gives) pull.longest = std::max(pull.longest, static_cast<size_t>(bytes));
  }
  return pull;
}

}  // namespace

bool is_inline(const Operation& operation, int size) {
  if (operation.kind == Kind::barrier) return true;
  // Not by its call, which may be that of the list that it is a part of.
  const bool has_out = operation.kind == Kind::scatter || operation.kind == Kind::broadcast;
  const size_t bytes = (has_out ? operation.out : operation.in)[0].nbytes();
  if (operation.kind == Kind::all_to_all) return bytes <= splits_begin(size);
  return bytes * (operation.kind == Kind::scatter ? static_cast<size_t>(size) : 1) <= kInlineBytes;
}

void write_splits(const Operation& operation, Notice& notice) {
  const auto element = static_cast<int64_t>(operation.in[0].element_size());
  auto* numbers = reinterpret_cast<int64_t*>(notice.data.data() + splits_begin(static_cast<int>(operation.in_splits.size())));
  for (const auto* splits : {&operation.in_splits, &operation.out_splits}) {
    for (const int64_t split : *splits) *numbers++ = split * element;
  }
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
