#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/reduce_tree.h"
#include "core/segments.h"
#include "shm/collectives.h"

namespace zt::comm {

namespace {

// Bytes per block. A block is reduced and then copied to all outputs while it is still in the L1 cache.
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

// Each rank uses its two stages in turns. The first half of a stage holds the rank's input of a chunk, the second half the result
// of the rank's segment of that chunk.
//
// The result of chunk n may be written when all ranks have staged chunk n, as they copied the results of n - 2 before that.
void all_reduce_staged(Team& team, const Operation& operation) {
  const at::Tensor &out = operation.out[0], &in = operation.in[0];
  const auto element = static_cast<int64_t>(in.element_size());
  const int64_t longest = static_cast<int64_t>(kStageBytes / 2) / element;
  const auto chunks = static_cast<uint32_t>((in.numel() + longest - 1) / longest);
  const uint32_t first = team.next_chunk();
  const auto length = [&](uint32_t chunk) { return std::min(longest, in.numel() - chunk * longest); };
  const auto put = [&](uint32_t chunk) {
    std::memcpy(team.stage(team.rank(), first + chunk), bytes_of(in) + chunk * longest * element,
                static_cast<size_t>(length(chunk) * element));
    team.raise_staged(first + chunk);
  };
  const auto results = [&](int rank, uint32_t chunk) { return team.stage(rank, first + chunk) + kStageBytes / 2; };
  std::vector<const void*> sources(static_cast<size_t>(team.size()));
  if (chunks > 0) put(0);
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const Segments segments{length(chunk), team.size()};
    const int64_t begin = segments.begin(team.rank()) * element;
    team.await_staged(first + chunk);
    for (int r = 0; r < team.size(); ++r) sources[static_cast<size_t>(r)] = team.stage(r, first + chunk) + begin;
    reduce_tree(in.scalar_type(), operation.reduce, results(team.rank(), chunk), sources, segments.size(team.rank()));
    team.raise_reduced(first + chunk);
    // Chunk n + 1 overwrites the input of chunk n - 1, which all ranks have read.
    if (chunk + 1 < chunks) put(chunk + 1);
    team.await_reduced(first + chunk);
    char* target = bytes_of(out) + chunk * longest * element;
    for (int step = 0; step < team.size(); ++step) {
      const int r = (team.rank() + step) % team.size();
      std::memcpy(target + segments.begin(r) * element, results(r, chunk), static_cast<size_t>(segments.size(r) * element));
    }
  }
  team.count_chunks(chunks);
  team.leave();
}

}  // namespace zt::comm
