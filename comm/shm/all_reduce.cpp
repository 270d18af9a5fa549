#include "shm/all_reduce.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>

#include "core/reduce_tree.h"
#include "messages/algorithms.h"

namespace zt::comm {

namespace {

// Added up and handed out in one go: what was just written is still in the first-level cache.
constexpr int64_t kBlockBytes = int64_t{16} << 10;

}  // namespace

void all_reduce_inline(const Team& team, const Operation& operation) {
  const at::Tensor& out = operation.out[0];
  c10::SmallVector<const void*, 8> sources;
  for (int r = 0; r < team.size(); ++r) sources.push_back(team.notice(r).data.data());
  reduce_tree(out.scalar_type(), operation.reduce, bytes_of(out), sources, out.numel());
}

void all_reduce_direct(Team& team, const Windows& windows, const Operation& operation) {
  const at::Tensor& out = operation.out[0];
  const auto element = static_cast<int64_t>(out.element_size());
  const Segments segments{out.numel(), team.size()};
  const int64_t begin = segments.begin(team.rank()) * element, end = begin + segments.size(team.rank()) * element;
  const auto size = static_cast<size_t>(team.size());
  std::vector<const char*> ins(size);
  std::vector<char*> outs(size);
  for (int r = 0; r < team.size(); ++r) {
    const bool is_own = r == team.rank();
    ins[static_cast<size_t>(r)] = is_own ? bytes_of(operation.in[0]) : windows.address(r, team.notice(r).in);
    outs[static_cast<size_t>(r)] = is_own ? bytes_of(out) : windows.address(r, team.notice(r).out);
  }
  char* own = bytes_of(out);
  std::vector<const void*> sources(size);
  for (int64_t at = begin; at < end; at += kBlockBytes) {
    const int64_t bytes = std::min(kBlockBytes, end - at);
    for (size_t r = 0; r < size; ++r) sources[r] = ins[r] + at;
    reduce_tree(out.scalar_type(), operation.reduce, own + at, sources, bytes / element);
    for (int r = 0; r < team.size(); ++r) {
      if (r != team.rank()) std::memcpy(outs[static_cast<size_t>(r)] + at, own + at, static_cast<size_t>(bytes));
    }
  }
  team.leave();
}

// Two stages a rank alternate; the first half of a stage takes the input, the second the result of the rank's segment of it.
//
// The result of piece n may be written when all have put piece n: each took the results of piece n - 2 before it put n.
void all_reduce_staged(Team& team, const Operation& operation) {
  const at::Tensor &out = operation.out[0], &in = operation.in[0];
  const auto element = static_cast<int64_t>(in.element_size());
  const int64_t longest = static_cast<int64_t>(kStageBytes / 2) / element;
  const auto pieces = static_cast<uint32_t>((in.numel() + longest - 1) / longest);
  const uint32_t first = team.next_piece();
  const auto length = [&](uint32_t piece) { return std::min(longest, in.numel() - piece * longest); };
  const auto put = [&](uint32_t piece) {
    std::memcpy(team.stage(team.rank(), first + piece), bytes_of(in) + piece * longest * element,
                static_cast<size_t>(length(piece) * element));
    team.raise_staged(first + piece);
  };
  const auto results = [&](int rank, uint32_t piece) { return team.stage(rank, first + piece) + kStageBytes / 2; };
  std::vector<const void*> sources(static_cast<size_t>(team.size()));
  if (pieces > 0) put(0);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    const Segments segments{length(piece), team.size()};
    const int64_t begin = segments.begin(team.rank()) * element;
    team.await_staged(first + piece);
    for (int r = 0; r < team.size(); ++r) sources[static_cast<size_t>(r)] = team.stage(r, first + piece) + begin;
    reduce_tree(in.scalar_type(), operation.reduce, results(team.rank(), piece), sources, segments.size(team.rank()));
    team.raise_reduced(first + piece);
    // Piece n + 1 goes where n - 1 was, whose inputs all have read.
    if (piece + 1 < pieces) put(piece + 1);
    team.await_reduced(first + piece);
    char* target = bytes_of(out) + piece * longest * element;
    for (int step = 0; step < team.size(); ++step) {
      const int r = (team.rank() + step) % team.size();
      std::memcpy(target + segments.begin(r) * element, results(r, piece), static_cast<size_t>(segments.size(r) * element));
    }
  }
  team.count_pieces(pieces);
  team.leave();
}

}  // namespace zt::comm
