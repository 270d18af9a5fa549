#include <algorithm>

#include "transport.h"

namespace zt::comm {

namespace {

// Calls part(offset, bytes) for each chunk of at most `longest` bytes, and once for an empty message.
template <class Part>
void in_chunks(size_t bytes, size_t longest, Part part) {
  size_t offset = 0;
  do {
    const size_t chunk = std::min(bytes - offset, longest);
    part(offset, chunk);
    offset += chunk;
  } while (offset < bytes);
}

}  // namespace

void Messages::send(int peer, const void* data, size_t bytes) {
  in_chunks(bytes, transport_.longest_message(), [&](size_t offset, size_t chunk) {
    pending_.push_back({peer, transport_.send(peer, static_cast<const char*>(data) + offset, chunk)});
  });
}

void Messages::recv(int peer, void* data, size_t bytes) {
  in_chunks(bytes, transport_.longest_message(), [&](size_t offset, size_t chunk) {
    pending_.push_back({peer, transport_.recv(peer, static_cast<char*>(data) + offset, chunk)});
  });
}

void Messages::wait() {
  while (!pending_.empty()) {
    const uint32_t seen = transport_.progress();
    if (std::erase_if(pending_, [](const Pending& pending) { return pending.message->done(); }) > 0) {
      policy_.progressed();
    } else if (!transport_.pause(policy_, seen)) {
      throw TimedOut{peers()};
    }
  }
}

std::vector<int> Messages::peers() const {
  std::vector<int> peers;
  for (const auto& pending : pending_) peers.push_back(pending.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace zt::comm
