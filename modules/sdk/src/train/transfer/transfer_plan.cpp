#include "transfer_plan.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/reshard/reshard.h"

namespace zt {

namespace {

// A run and the number of the item that it belongs to. Each rank puts its parts into an order of its own, and the parts with one
// place in these orders are an item.
struct ItemRun {
  int64_t item = 0;
  TransferRun run;
};

at::Tensor tensor_over(std::vector<int64_t>& numbers) {
  return at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kLong);
}

// The largest number of any rank, in each place.
void raise_to_largest(std::vector<int64_t>& numbers, Communicator* control) {
  if (!control || numbers.empty()) return;
  const at::Tensor all = tensor_over(numbers);
  control->all_reduce(all, all, ReduceOp::max).synchronize();
}

// The ranks that hold one region of a lane.
struct RegionOwners {
  const Region* region;
  std::vector<int> ranks;
};

// Returns the different regions of a lane that have elements.
std::vector<RegionOwners> owners_of(const TransferLane& lane) {
  std::vector<RegionOwners> owners;
  for (size_t rank = 0; rank < lane.held.size(); ++rank) {
    const Region& region = lane.held[rank];
    if (region.count == 0) continue;
    auto same = std::ranges::find_if(owners, [&](const RegionOwners& each) { return *each.region == region; });
    if (same == owners.end()) same = owners.insert(same, {&region, {}});
    same->ranks.push_back(static_cast<int>(rank));
  }
  return owners;
}

// A part that one rank wants, and the runs that make it: from this rank itself, and from others.
struct PartRuns {
  int32_t lane = 0, part = 0;
  std::vector<TransferRun> local;
  std::vector<std::pair<int, TransferRun>> received;  // with their givers
};

// Makes the runs of one rank.
class RunMaker {
 public:
  RunMaker(const std::vector<TransferLane>& lanes, int rank) : lanes_(lanes), rank_(rank) {}

  // Returns all parts, by lane and part.
  std::vector<PartRuns> run() {
    for (int32_t lane = 0; lane < static_cast<int32_t>(lanes_.size()); ++lane) add_lane(lane);
    return std::move(parts_);
  }

 private:
  void add_lane(int32_t lane) {
    const TransferLane& of = lanes_[lane];
    if (of.wanted.empty()) return;
    const std::vector<RegionOwners> owners = owners_of(of);
    std::vector<Region> regions;
    std::vector<int> givers;
    for (const RegionOwners& each : owners) {
      regions.push_back(*each.region);
      const bool is_own = std::ranges::binary_search(each.ranks, rank_);
      givers.push_back(is_own ? rank_ : each.ranks[static_cast<size_t>(rank_) % each.ranks.size()]);
    }
    for (int32_t part = 0; part < static_cast<int32_t>(of.wanted.size()); ++part) add_part(lane, part, regions, givers);
  }

  void add_part(int32_t lane, int32_t part, const std::vector<Region>& regions, const std::vector<int>& givers) {
    const WantedPart& wanted = lanes_[lane].wanted[part];
    PartRuns& runs = parts_.emplace_back(PartRuns{lane, part, {}, {}});
    if (wanted.region.count == 0) return;
    const Region& own = lanes_[lane].held[rank_];
    CopyList copies = make_copy_list(lanes_[lane].shape, {own}, wanted.region);
    const bool is_all_own = own.count > 0 && copies.missing == 0;
    if (!is_all_own) copies = make_copy_list(lanes_[lane].shape, regions, wanted.region);
    if (copies.missing > 0) fault("a transfer lacks {} elements of its lane {}, which no rank has", copies.missing, lane);
    for (const CopyRun& copy : copies.runs) {
      const int giver = is_all_own ? rank_ : givers[copy.source];
      const TransferRun run{lane, part, copy.from, wanted.at + copy.to, copy.count, copy.times, copy.from_stride, copy.to_stride};
      if (giver == rank_) runs.local.push_back(run);
      else runs.received.emplace_back(giver, run);
    }
  }

  const std::vector<TransferLane>& lanes_;
  const int rank_;
  std::vector<PartRuns> parts_;
};

// Puts the parts of a rank into an order in which all ranks give and take at the same time: those that come from others first
// from the next rank, then from the one after it, and between them, evenly, those that the rank has itself.
std::vector<PartRuns> in_order(std::vector<PartRuns> parts, int rank, int ranks) {
  const auto own = std::stable_partition(parts.begin(), parts.end(), [](const PartRuns& part) { return !part.received.empty(); });
  const auto distance = [&](const PartRuns& part) { return (part.received.front().first - rank + ranks) % ranks; };
  std::stable_sort(parts.begin(), own, [&](const PartRuns& a, const PartRuns& b) { return distance(a) < distance(b); });
  const auto from_others = own - parts.begin(), all = std::ssize(parts);
  std::vector<PartRuns> order;
  for (int64_t place = 0, taken = 0; place < all; ++place) {
    const bool is_from_other = (place + 1) * from_others / all > taken;
    order.push_back(std::move(is_from_other ? parts[taken] : parts[from_others + place - taken]));
    taken += is_from_other ? 1 : 0;
  }
  return order;
}

// The runs of one rank by items.
struct OwnRuns {
  std::vector<ItemRun> local;
  std::vector<std::vector<ItemRun>> received;  // by giver
};

OwnRuns runs_of(const std::vector<PartRuns>& order, int ranks) {
  OwnRuns runs{{}, std::vector<std::vector<ItemRun>>(static_cast<size_t>(ranks))};
  for (int64_t item = 0; item < std::ssize(order); ++item) {
    for (const TransferRun& run : order[item].local) runs.local.push_back({item, run});
    for (const auto& [giver, run] : order[item].received) runs.received[giver].push_back({item, run});
  }
  return runs;
}

// Tells the other ranks what this one takes from them. Returns what they take from it, by rank. Collective.
std::vector<std::vector<ItemRun>> exchange_requests(const std::vector<std::vector<ItemRun>>& received, Communicator* control) {
  constexpr int64_t kNumbers = 6;
  std::vector<std::vector<ItemRun>> sent(received.size());
  if (!control) return sent;
  std::vector<int64_t> numbers, counts_out, counts_in(received.size());
  for (const auto& runs : received) {
    counts_out.push_back(kNumbers * static_cast<int64_t>(runs.size()));
    for (const auto& [item, run] : runs) {
      for (const int64_t number : {item, int64_t{run.lane}, run.from, run.count, run.times, run.from_stride})
        numbers.push_back(number);
    }
  }
  control->all_to_all(tensor_over(counts_in), tensor_over(counts_out)).synchronize();
  int64_t total = 0;
  for (const int64_t count : counts_in) total += count;
  std::vector<int64_t> asked(static_cast<size_t>(total));
  control->all_to_all(tensor_over(asked), tensor_over(numbers), counts_in, counts_out).synchronize();
  const int64_t* next = asked.data();
  for (size_t rank = 0; rank < sent.size(); ++rank) {
    for (int64_t i = 0; i < counts_in[rank] / kNumbers; ++i, next += kNumbers)
      sent[rank].push_back({next[0], {static_cast<int32_t>(next[1]), 0, next[2], 0, next[3], next[4], next[5], 0}});
  }
  return sent;
}

// By item, the most that any rank needs: all bytes, in buckets and beside them, and those that it sends.
struct ItemCosts {
  std::vector<int64_t> all, sent;
};

void add_bytes(const std::vector<TransferLane>& lanes, const std::vector<std::vector<ItemRun>>& runs,
               std::vector<int64_t>& bytes) {
  for (const auto& of_peer : runs) {
    for (const auto& [item, run] : of_peer) bytes[item] += bytes_in_bucket(run, lanes[run.lane].element_bytes);
  }
}

// items: their number, the same on all ranks. Collective.
ItemCosts costs_of(const std::vector<TransferLane>& lanes, int64_t items, const std::vector<PartRuns>& order,
                   const std::vector<std::vector<ItemRun>>& sent, const std::vector<std::vector<ItemRun>>& received,
                   Communicator* control) {
  ItemCosts costs{std::vector<int64_t>(static_cast<size_t>(items)), {}};
  add_bytes(lanes, sent, costs.all);
  costs.sent = costs.all;
  add_bytes(lanes, received, costs.all);
  for (size_t item = 0; item < order.size(); ++item)
    costs.all[item] += lanes[order[item].lane].wanted[order[item].part].held_bytes;
  raise_to_largest(costs.all, control);
  raise_to_largest(costs.sent, control);
  return costs;
}

// Appends the runs of [first, end) to those of a round, from place `next` of `runs` on.
void take_items(const std::vector<TransferLane>& lanes, const std::vector<ItemRun>& runs, int64_t end, size_t& next,
                std::vector<TransferRun>& into, int64_t* bytes) {
  for (; next < runs.size() && runs[next].item < end; ++next) {
    into.push_back(runs[next].run);
    if (bytes) *bytes += bytes_in_bucket(runs[next].run, lanes[runs[next].run.lane].element_bytes);
  }
}

// Cuts the items into rounds.
class RoundMaker {
 public:
  RoundMaker(const std::vector<TransferLane>& lanes, const OwnRuns& mine, const std::vector<std::vector<ItemRun>>& sent)
      : lanes_(lanes), mine_(mine), sent_(sent), next_sent_(sent.size()), next_received_(sent.size()) {}

  // Adds the round of the items up to `end`.
  void add(int64_t end, bool communicates, std::vector<TransferRound>& rounds) {
    const size_t ranks = sent_.size();
    TransferRound round;
    round.communicates = communicates;
    for (auto* lists : {&round.sent, &round.received}) lists->resize(ranks);
    for (auto* bytes : {&round.sent_bytes, &round.received_bytes}) bytes->resize(ranks);
    take_items(lanes_, mine_.local, end, next_local_, round.local, nullptr);
    for (size_t rank = 0; rank < ranks; ++rank) {
      take_items(lanes_, sent_[rank], end, next_sent_[rank], round.sent[rank], &round.sent_bytes[rank]);
      take_items(lanes_, mine_.received[rank], end, next_received_[rank], round.received[rank], &round.received_bytes[rank]);
    }
    rounds.push_back(std::move(round));
  }

 private:
  const std::vector<TransferLane>& lanes_;
  const OwnRuns& mine_;
  const std::vector<std::vector<ItemRun>>& sent_;
  size_t next_local_ = 0;
  std::vector<size_t> next_sent_, next_received_;
};

// Finds out where in what its peers send the parts of this rank begin, and how much ranks need. Collective.
void place_rounds(TransferPlan& plan, Communicator* control) {
  const size_t ranks = control ? static_cast<size_t>(control->size()) : 0, rounds = plan.rounds.size();
  std::vector<int64_t> begins(ranks * rounds), begins_of_peers(ranks * rounds), most{0, 0};
  for (size_t number = 0; number < rounds; ++number) {
    int64_t sent = 0, received = 0;
    for (size_t peer = 0; peer < ranks; ++peer) {
      begins[peer * rounds + number] = sent;
      sent += plan.rounds[number].sent_bytes[peer];
      received += plan.rounds[number].received_bytes[peer];
    }
    most = {std::max(most[0], sent + received), std::max(most[1], sent)};
  }
  if (!control || rounds == 0) return;
  control->all_to_all(tensor_over(begins_of_peers), tensor_over(begins)).synchronize();
  for (size_t number = 0; number < rounds; ++number) {
    for (size_t peer = 0; peer < ranks; ++peer)
      plan.rounds[number].received_at.push_back(begins_of_peers[peer * rounds + number]);
  }
  raise_to_largest(most, control);
  plan.bucket_bytes = most[0], plan.sent_bytes = most[1];
}

}  // namespace

int64_t bytes_in_bucket(const TransferRun& run, int64_t element_bytes) {
  return (run.numel() * element_bytes + kRunAlign - 1) / kRunAlign * kRunAlign;
}

TransferPlan make_transfer_plan(const std::vector<TransferLane>& lanes, int rank, Communicator* control, int64_t bucket_bytes) {
  const int ranks = control ? control->size() : rank + 1;
  const std::vector<PartRuns> order = in_order(RunMaker(lanes, rank).run(), rank, ranks);
  const OwnRuns mine = runs_of(order, ranks);
  std::vector<int64_t> items{std::ssize(order)};
  raise_to_largest(items, control);
  const auto sent = exchange_requests(mine.received, control);
  const ItemCosts costs = costs_of(lanes, items[0], order, sent, mine.received, control);
  TransferPlan plan;
  RoundMaker maker(lanes, mine, sent);
  for (int64_t begin = 0; begin < items[0];) {
    int64_t end = begin, bytes = 0;
    bool communicates = false;
    for (; end < items[0] && (end == begin || bytes + costs.all[end] <= bucket_bytes); ++end) {
      bytes += costs.all[end];
      communicates = communicates || costs.sent[end] > 0;
    }
    maker.add(end, communicates, plan.rounds);
    for (int64_t item = begin; item < std::min(end, std::ssize(order)); ++item)
      plan.rounds.back().completed.emplace_back(order[item].lane, order[item].part);
    begin = end;
  }
  place_rounds(plan, control);
  return plan;
}

}  // namespace zt
