#include "shm/share.h"

#include <array>
#include <cstring>

#include "messages/queued_backend.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

// What a rank says of the memory that it made.
struct Offer {
  MemoryAddress address;
  std::array<char, 512> complaint;  // why it failed; empty: it did not
};
static_assert(sizeof(Offer) <= kInlineBytes);

void write_complaint(Offer& offer, const std::string& text) {
  const size_t length = std::min(text.size(), offer.complaint.size() - 1);
  std::memcpy(offer.complaint.data(), text.data(), length);
  offer.complaint[length] = 0;
}

// All ranks' offers, in rank order.
std::vector<Offer> exchange(Team& team, const Offer& mine) {
  Notice& notice = team.my_notice();
  notice.call = {.kind = Kind::all_gather, .dtype = at::kByte, .count = sizeof(Offer)};
  std::memcpy(notice.data.data(), &mine, sizeof(Offer));
  team.enter();
  std::vector<Offer> offers(static_cast<size_t>(team.size()));
  for (int r = 0; r < team.size(); ++r) std::memcpy(&offers[static_cast<size_t>(r)], team.notice(r).data.data(), sizeof(Offer));
  return offers;
}

void refuse_together(const std::vector<Offer>& offers, const Group& group) {
  for (size_t r = 0; r < offers.size(); ++r) {
    if (offers[r].complaint[0] != 0)
      throw Declined(fmt::format("{}: {}", group.rank_name(static_cast<int>(r)), offers[r].complaint.data()));
  }
}

// Calls `attempt`; what it complains about is told to the others.
template <class Attempt>
std::vector<Offer> try_together(Team& team, Offer& offer, Attempt attempt) {
  try {
    attempt();
  } catch (const Fault& failure) {
    write_complaint(offer, failure.what());
  }
  const auto offers = exchange(team, offer);
  refuse_together(offers, team.group());
  return offers;
}

}  // namespace

std::vector<SharedMemory> share(Team& team, size_t bytes, Pages pages) {
  std::vector<SharedMemory> pieces(static_cast<size_t>(team.size()));
  SharedMemory& own = pieces[static_cast<size_t>(team.rank())];
  Offer offer{};
  const auto offers = try_together(team, offer, [&] {
    if (bytes == 0) return;
    own = SharedMemory::create(bytes, pages);
    offer.address = own.address();
  });
  // A second round: the descriptors may go away once everybody has opened them.
  try_together(team, offer, [&] {
    for (int r = 0; r < team.size(); ++r) {
      const MemoryAddress& address = offers[static_cast<size_t>(r)].address;
      if (r != team.rank() && address.bytes > 0) pieces[static_cast<size_t>(r)] = SharedMemory::open(address);
    }
  });
  own.hide();
  return pieces;
}

}  // namespace zt::comm
