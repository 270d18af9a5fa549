#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/compare.h"
#include "shm/collectives.h"

namespace zt::comm {

void send(Team& team, const Windows& windows, const Operation& operation) {
  const at::Tensor& tensor = operation.in[0];
  PairLane& lane = team.lane(team.rank(), operation.peer);
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  uint32_t chunk = lane.sent.value();  // chunks sent so far; only this rank changes the value
  const auto await_taken = [&](uint32_t count) { team.await_peer(lane.taken, count, operation.peer); };
  // `call` and `place` describe one message at a time, so the receiver must have taken all of the previous message.
  await_taken(chunk);
  lane.call = operation.call;
  lane.place = tensor.nbytes() > 2 * kLaneBytes ? windows.place_of(tensor.const_data_ptr()) : SharedPlace{};
  if (lane.place.window >= 0) {
    lane.sent.raise(++chunk);
    return await_taken(chunk);
  }
  int64_t offset = 0;
  do {
    if (offset > 0) await_taken(chunk - 1);
    const auto length = std::min<int64_t>(kLaneBytes, bytes - offset);
    if (length > 0) {
      std::memcpy(team.lane_stage(team.rank(), operation.peer, chunk), bytes_of(tensor) + offset, static_cast<size_t>(length));
    }
    lane.sent.raise(++chunk);
    offset += kLaneBytes;
  } while (offset < bytes);
}

void recv(Team& team, const Windows& windows, const Operation& operation) {
  const at::Tensor& tensor = operation.out[0];
  PairLane& lane = team.lane(operation.peer, team.rank());
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  uint32_t chunk = lane.taken.value();
  team.await_peer(lane.sent, chunk + 1, operation.peer);
  compare_message(lane.call, operation.call, team.group());
  if (lane.place.window >= 0) {
    if (bytes > 0) std::memcpy(bytes_of(tensor), windows.address(operation.peer, lane.place), static_cast<size_t>(bytes));
    return lane.taken.raise(chunk + 1);
  }
  int64_t offset = 0;
  do {
    if (offset > 0) team.await_peer(lane.sent, chunk + 1, operation.peer);
    const auto length = std::min<int64_t>(kLaneBytes, bytes - offset);
    if (length > 0) {
      std::memcpy(bytes_of(tensor) + offset, team.lane_stage(operation.peer, team.rank(), chunk), static_cast<size_t>(length));
    }
    lane.taken.raise(++chunk);
    offset += kLaneBytes;
  } while (offset < bytes);
}

}  // namespace zt::comm
