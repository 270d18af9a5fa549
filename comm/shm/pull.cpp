#include "shm/pull.h"

#include <algorithm>
#include <cstring>

#include "core/reduce_tree.h"

namespace zt::comm {

namespace {

void copy(char* to, const char* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Takes bytes [offset, offset + up to `limit`) of each part; at(r) is where rank r's are.
template <class At>
void take(const Team& team, const Pull& pull, size_t offset, size_t limit, At at) {
  const int size = team.size();
  const auto length = [&](int r) {
    const size_t bytes = pull.takes[static_cast<size_t>(r)].bytes;
    return bytes > offset ? std::min(limit, bytes - offset) : 0;
  };
  if (!pull.targets.empty()) {
    // Its own part first, then the next rank's: not everybody reads the same memory at once.
    for (int step = 0; step < size; ++step) {
      const int r = (team.rank() + step) % size;
      if (length(r) > 0) copy(pull.targets[static_cast<size_t>(r)] + offset, at(r), length(r));
    }
  } else if (pull.sum && length(0) > 0) {
    c10::SmallVector<const void*, kFew> sources;
    for (int r = 0; r < size; ++r) sources.push_back(at(r));
    reduce_tree(pull.dtype, pull.reduce, pull.sum + offset, sources,
                static_cast<int64_t>(length(0) / c10::elementSize(pull.dtype)));
  }
}

}  // namespace

void pull_inline(const Team& team, const Pull& pull) {
  take(team, pull, 0, SIZE_MAX, [&](int r) { return team.notice(r).data.data() + pull.takes[static_cast<size_t>(r)].begin; });
}

void pull_direct(Team& team, const Windows& windows, const Pull& pull) {
  take(team, pull, 0, SIZE_MAX, [&](int r) {
    const char* source = r == team.rank() ? pull.source : windows.address(r, team.notice(r).in);
    return source + pull.takes[static_cast<size_t>(r)].begin;
  });
  team.leave();
}

void pull_staged(Team& team, const Pull& pull) {
  const auto size = static_cast<size_t>(team.size());
  // A stage holds a piece for every reader, or one for all. Pieces are whole elements and whole cache lines.
  const size_t piece = (pull.is_alike ? kStageBytes : kStageBytes / size) / 64 * 64;
  const size_t own = static_cast<size_t>(team.rank());
  const auto pieces = static_cast<uint32_t>((pull.longest + piece - 1) / piece);
  const uint32_t first = team.next_piece();
  const auto put = [&](uint32_t number) {
    const size_t offset = static_cast<size_t>(number) * piece;
    char* stage = team.stage(team.rank(), first + number);
    for (size_t reader = 0; pull.source && reader < (pull.is_alike ? 1 : size); ++reader) {
      const Range& part = pull.gives[reader];
      if (part.bytes > offset && (pull.is_alike || reader != own)) {
        copy(stage + reader * piece, pull.source + part.begin + offset, std::min(piece, part.bytes - offset));
      }
    }
    team.raise_staged(first + number);
  };
  for (uint32_t number = 0; number < pieces; ++number) {
    // Piece n is put where piece n - 2 was, which all have taken before any of them said so.
    if (number >= 2) team.await_reduced(first + number - 2);
    put(number);
    team.await_staged(first + number);
    const size_t offset = static_cast<size_t>(number) * piece;
    take(team, pull, offset, piece, [&](int r) -> const char* {
      const auto source = static_cast<size_t>(r);
      if (source == own) return pull.source + pull.takes[source].begin + offset;
      return team.stage(r, first + number) + (pull.is_alike ? 0 : own * piece);
    });
    team.raise_reduced(first + number);
  }
  // The next operation may put its first pieces at once.
  for (uint32_t number = pieces >= 2 ? pieces - 2 : 0; number < pieces; ++number) team.await_reduced(first + number);
  team.count_pieces(pieces);
}

}  // namespace zt::comm
