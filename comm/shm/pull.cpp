#include <algorithm>
#include <cstring>

#include "core/reduce_tree.h"
#include "shm/collectives.h"

namespace zt::comm {

namespace {

void copy(char* to, const char* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Reads up to `limit` bytes of each part, from `offset` on. at(r) returns where the bytes of rank r lie.
template <class At>
void take(const Team& team, const ReadList& list, size_t offset, size_t limit, At at) {
  const int size = team.size();
  const auto length = [&](int r) {
    const size_t bytes = list.takes[static_cast<size_t>(r)].bytes;
    return bytes > offset ? std::min(limit, bytes - offset) : 0;
  };
  if (!list.targets.empty()) {
    // Each rank starts with its own part, so that the ranks do not all read the same memory at once.
    for (int step = 0; step < size; ++step) {
      const int r = (team.rank() + step) % size;
      if (length(r) > 0) copy(list.targets[static_cast<size_t>(r)] + offset, at(r), length(r));
    }
  } else if (list.sum && length(0) > 0) {
    c10::SmallVector<const void*, kFew> sources;
    for (int r = 0; r < size; ++r) sources.push_back(at(r));
    reduce_tree(list.dtype, list.reduce, list.sum + offset, sources,
                static_cast<int64_t>(length(0) / c10::elementSize(list.dtype)));
  }
}

}  // namespace

void pull_inline(const Team& team, const ReadList& list) {
  take(team, list, 0, SIZE_MAX, [&](int r) { return team.notice(r).data.data() + list.takes[static_cast<size_t>(r)].begin; });
}

void pull_direct(Team& team, const Windows& windows, const ReadList& list) {
  take(team, list, 0, SIZE_MAX, [&](int r) {
    const char* source = r == team.rank() ? list.source : windows.address(r, team.notice(r).in);
    return source + list.takes[static_cast<size_t>(r)].begin;
  });
  team.leave();
}

void pull_staged(Team& team, const ReadList& list) {
  const auto size = static_cast<size_t>(team.size());
  // A stage holds one chunk per reader, or one for all readers. Chunks are whole elements and whole cache lines.
  const size_t chunk = (list.is_same_part ? kStageBytes : kStageBytes / size) / 64 * 64;
  const size_t own = static_cast<size_t>(team.rank());
  const auto chunks = static_cast<uint32_t>((list.longest + chunk - 1) / chunk);
  const uint32_t first = team.next_chunk();
  const auto put = [&](uint32_t number) {
    const size_t offset = static_cast<size_t>(number) * chunk;
    char* stage = team.stage(team.rank(), first + number);
    for (size_t reader = 0; list.source && reader < (list.is_same_part ? 1 : size); ++reader) {
      const ByteRange& part = list.gives[reader];
      if (part.bytes > offset && (list.is_same_part || reader != own)) {
        copy(stage + reader * chunk, list.source + part.begin + offset, std::min(chunk, part.bytes - offset));
      }
    }
    team.raise_staged(first + number);
  };
  for (uint32_t number = 0; number < chunks; ++number) {
    // Chunk n overwrites chunk n - 2, so all ranks must have read that one.
    if (number >= 2) team.await_reduced(first + number - 2);
    put(number);
    team.await_staged(first + number);
    const size_t offset = static_cast<size_t>(number) * chunk;
    take(team, list, offset, chunk, [&](int r) -> const char* {
      const auto source = static_cast<size_t>(r);
      if (source == own) return list.source + list.takes[source].begin + offset;
      return team.stage(r, first + number) + (list.is_same_part ? 0 : own * chunk);
    });
    team.raise_reduced(first + number);
  }
  // Waits until all ranks have read the last two chunks, because the next operation overwrites them at once.
  for (uint32_t number = chunks >= 2 ? chunks - 2 : 0; number < chunks; ++number) team.await_reduced(first + number);
  team.count_chunks(chunks);
}

}  // namespace zt::comm
