#include "shm/channel.h"

#include <algorithm>
#include <cstring>

#include "core/compare.h"
#include "messages/algorithms.h"

namespace zt::comm {

void send(Team& team, const Windows& windows, const Operation& operation) {
  const at::Tensor& tensor = operation.in[0];
  Channel& channel = team.channel(team.rank(), operation.peer);
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  uint32_t piece = channel.sent.value();  // pieces so far: this rank alone counts them
  const auto await_taken = [&](uint32_t count) { team.await_peer(channel.taken, count, operation.peer); };
  // The receiver reads what the message is with its first piece: that of the message before must have been taken.
  await_taken(piece);
  channel.call = operation.call;
  channel.place = tensor.nbytes() > 2 * kChannelBytes ? windows.place_of(tensor.const_data_ptr()) : SharedPlace{};
  if (channel.place.window >= 0) {
    channel.sent.raise(++piece);
    return await_taken(piece);
  }
  int64_t offset = 0;
  do {
    if (offset > 0) await_taken(piece - 1);
    const auto length = std::min<int64_t>(kChannelBytes, bytes - offset);
    if (length > 0) {
      std::memcpy(team.channel_stage(team.rank(), operation.peer, piece), bytes_of(tensor) + offset, static_cast<size_t>(length));
    }
    channel.sent.raise(++piece);
    offset += kChannelBytes;
  } while (offset < bytes);
}

void recv(Team& team, const Windows& windows, const Operation& operation) {
  const at::Tensor& tensor = operation.out[0];
  Channel& channel = team.channel(operation.peer, team.rank());
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  uint32_t piece = channel.taken.value();
  team.await_peer(channel.sent, piece + 1, operation.peer);
  compare_message(channel.call, operation.call, team.group());
  if (channel.place.window >= 0) {
    if (bytes > 0) std::memcpy(bytes_of(tensor), windows.address(operation.peer, channel.place), static_cast<size_t>(bytes));
    return channel.taken.raise(piece + 1);
  }
  int64_t offset = 0;
  do {
    if (offset > 0) team.await_peer(channel.sent, piece + 1, operation.peer);
    const auto length = std::min<int64_t>(kChannelBytes, bytes - offset);
    if (length > 0) {
      std::memcpy(bytes_of(tensor) + offset, team.channel_stage(operation.peer, team.rank(), piece), static_cast<size_t>(length));
    }
    channel.taken.raise(++piece);
    offset += kChannelBytes;
  } while (offset < bytes);
}

}  // namespace zt::comm
