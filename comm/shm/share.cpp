#include "shm/share.h"

#include <cstring>

#include "queue/operation_runner.h"
#include "shm/offer.h"

namespace zt::comm {

namespace {

static_assert(sizeof(Offer) <= kInlineBytes);

// Sends this rank's offer to all ranks. Returns all offers, in rank order.
std::vector<Offer> exchange(Team& team, const Offer& mine) {
  Notice& notice = team.my_notice();
  notice.call = {.kind = CallKind::all_gather, .dtype = at::kByte, .count = sizeof(Offer)};
  std::memcpy(notice.data.data(), &mine, sizeof(Offer));
  team.enter();
  std::vector<Offer> offers(static_cast<size_t>(team.size()));
  for (int r = 0; r < team.size(); ++r) std::memcpy(&offers[static_cast<size_t>(r)], team.notice(r).data.data(), sizeof(Offer));
  return offers;
}

// Throws Declined if a rank failed.
void check_offers(const std::vector<Offer>& offers, const Group& group) {
  for (size_t r = 0; r < offers.size(); ++r) {
    if (offers[r].is_complaint())
      throw Declined(fmt::format("{}: {}", group.rank_name(static_cast<int>(r)), offers[r].complaint.data()));
  }
}

// Calls `attempt`, then exchanges the offers. Throws Declined on all ranks if `attempt` threw Fault on one of them.
template <class Attempt>
std::vector<Offer> try_together(Team& team, Offer& offer, Attempt attempt) {
  attempt_or_complain(offer, attempt);
  const auto offers = exchange(team, offer);
  check_offers(offers, team.group());
  return offers;
}

}  // namespace

std::vector<SharedMemory> open_others(Team& team, const std::function<MemoryAddress()>& offer_memory) {
  std::vector<SharedMemory> memories(static_cast<size_t>(team.size()));
  Offer offer;
  const auto offers = try_together(team, offer, [&] { offer.address = offer_memory(); });
  try_together(team, offer, [&] {
    for (int r = 0; r < team.size(); ++r) {
      const MemoryAddress& address = offers[static_cast<size_t>(r)].address;
      if (r != team.rank() && address.bytes > 0) memories[static_cast<size_t>(r)] = SharedMemory::open(address);
    }
  });
  for (SharedMemory& memory : memories) memory.hide();
  return memories;
}

std::vector<SharedMemory> share(Team& team, size_t bytes, Pages pages) {
  SharedMemory own;
  auto memories = open_others(team, [&] {
    if (bytes > 0) own = SharedMemory::create(bytes, pages);
    return own.address();
  });
  own.hide();
  memories[static_cast<size_t>(team.rank())] = std::move(own);
  return memories;
}

}  // namespace zt::comm
