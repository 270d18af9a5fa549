#include <algorithm>
#include <numeric>
#include <span>

#include "core/bytes.h"
#include "shm/collectives.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

// The splits of one rank of an all_to_all: the bytes that it gives to each rank and expects from each rank.
struct Splits {
  std::span<const int64_t> gives, expects;
  ByteRange part_for(int rank) const {
    const auto begin = std::accumulate(gives.begin(), gives.begin() + rank, int64_t{0});
    return {static_cast<size_t>(begin), static_cast<size_t>(gives[static_cast<size_t>(rank)])};
  }
};

// Returns where the splits begin in Notice::data: they lie at its end. Inline data of the rank lies at its start.
size_t splits_begin(int size) {
  return kInlineBytes - 2 * static_cast<size_t>(size) * sizeof(int64_t);
}

Splits splits_of(const Team& team, int rank) {
  const auto size = static_cast<size_t>(team.size());
  const auto* numbers = reinterpret_cast<const int64_t*>(team.notice(rank).data.data() + splits_begin(team.size()));
  return {{numbers, size}, {numbers + size, size}};
}

// Makes the list in which every rank with a source gives its whole buffer of `bytes` to the readers.
ReadList same_part_for_all(size_t bytes, int size) {
  ReadList list;
  list.is_same_part = true;
  list.gives.assign(static_cast<size_t>(size), {0, bytes});
  list.takes.assign(static_cast<size_t>(size), {});
  list.longest = bytes;
  return list;
}

// Makes the list in which every rank with a source gives part r of its buffer, of `bytes`, to rank r.
ReadList one_part_each(size_t bytes, int rank, int size) {
  ReadList list;
  for (int r = 0; r < size; ++r) list.gives.push_back({static_cast<size_t>(r) * bytes, bytes});
  list.takes.assign(static_cast<size_t>(size), {static_cast<size_t>(rank) * bytes, bytes});
  list.longest = bytes;
  return list;
}

void add_up(ReadList& list, const Operation& operation, char* sum) {
  list.sum = sum;
  list.dtype = operation.in[0].scalar_type();
  list.reduce = operation.reduce;
}

// Compares the splits of all pairs of ranks on every rank, so that all ranks throw the same Fault.
void check_splits(std::span<const Splits> splits, const Group& group) {
  for (size_t from = 0; from < splits.size(); ++from) {
    for (size_t to = 0; to < splits.size(); ++to) {
      const int64_t given = splits[from].gives[to], expected = splits[to].expects[from];
      if (given == expected) continue;
      fault("{} gives {} bytes where {} expects {}: the in_splits of one rank must match the out_splits of the other",
            group.rank_name(static_cast<int>(from)), given, group.rank_name(static_cast<int>(to)), expected);
    }
  }
}

ReadList read_list_of_all_to_all(const Operation& operation, const Team& team) {
  ReadList list;
  list.source = bytes_of(operation.in[0]);
  char* target = bytes_of(operation.out[0]);
  c10::SmallVector<Splits, kFew> splits;
  for (int r = 0; r < team.size(); ++r) splits.push_back(splits_of(team, r));
  check_splits(splits, team.group());
  for (int r = 0; r < team.size(); ++r) {
    const Splits& theirs = splits[static_cast<size_t>(r)];
    list.gives.push_back(splits[static_cast<size_t>(team.rank())].part_for(r));
    list.takes.push_back(theirs.part_for(team.rank()));
    list.targets.push_back(target);
    target += list.takes.back().bytes;
    for (const int64_t bytes : theirs.gives) list.longest = std::max(list.longest, static_cast<size_t>(bytes));
  }
  return list;
}

}  // namespace

bool is_inline(const Operation& operation, int size) {
  if (operation.kind == CallKind::barrier) return true;
  // operation.call is not used here: for a part of a list it describes the whole list.
  const bool has_out = operation.kind == CallKind::scatter || operation.kind == CallKind::broadcast;
  const size_t bytes = (has_out ? operation.out : operation.in)[0].nbytes();
  if (operation.kind == CallKind::all_to_all) return bytes <= splits_begin(size);
  return bytes * (operation.kind == CallKind::scatter ? static_cast<size_t>(size) : 1) <= kInlineBytes;
}

void write_splits(const Operation& operation, Notice& notice) {
  const auto element = static_cast<int64_t>(operation.in[0].element_size());
  auto* numbers = reinterpret_cast<int64_t*>(notice.data.data() + splits_begin(static_cast<int>(operation.in_splits.size())));
  for (const auto* splits : {&operation.in_splits, &operation.out_splits}) {
    for (const int64_t split : *splits) *numbers++ = split * element;
  }
}

ReadList make_read_list(const Operation& operation, const Team& team) {
  const int size = team.size(), rank = team.rank(), root = operation.peer;
  const bool is_root = rank == root;
  const at::Tensor& in = operation.in.empty() ? operation.out[0] : operation.in[0];
  const at::Tensor out = operation.out.empty() ? at::Tensor() : operation.out[0];
  ReadList list;
  switch (operation.kind) {
    case CallKind::all_gather:
    case CallKind::gather:
      list = same_part_for_all(in.nbytes(), size);
      list.source = bytes_of(in);
      list.targets.assign(static_cast<size_t>(size), nullptr);
      for (int r = 0; r < size && (operation.kind == CallKind::all_gather || is_root); ++r) {
        list.takes[static_cast<size_t>(r)] = {0, in.nbytes()};
        list.targets[static_cast<size_t>(r)] = bytes_of(out) + static_cast<size_t>(r) * in.nbytes();
      }
      return list;
    case CallKind::broadcast:
      list = same_part_for_all(out.nbytes(), size);
      list.source = is_root ? bytes_of(out) : nullptr;
      list.takes[static_cast<size_t>(root)] = {0, is_root ? 0 : out.nbytes()};
      list.targets.assign(static_cast<size_t>(size), bytes_of(out));
      return list;
    case CallKind::scatter:
      list = one_part_each(out.nbytes(), rank, size);
      list.source = is_root ? bytes_of(in) : nullptr;
      for (int r = 0; r < size; ++r) {
        if (r != root) list.takes[static_cast<size_t>(r)] = {};
      }
      list.targets.assign(static_cast<size_t>(size), bytes_of(out));
      return list;
    case CallKind::reduce:
      list = same_part_for_all(in.nbytes(), size);
      list.source = bytes_of(in);
      list.takes.assign(static_cast<size_t>(size), {0, in.nbytes()});
      add_up(list, operation, is_root ? bytes_of(out) : nullptr);
      return list;
    case CallKind::reduce_scatter:
      list = one_part_each(out.nbytes(), rank, size);
      list.source = bytes_of(in);
      add_up(list, operation, bytes_of(out));
      return list;
    case CallKind::all_to_all:
      return read_list_of_all_to_all(operation, team);
    default:
      fault("{} has no read list", name_of(operation.kind));
  }
}

}  // namespace zt::comm
