#include "lowering.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "messages.h"
#include "schedule/timing.h"
#include "transfers.h"

namespace zt::pipe {

namespace {

struct Traffic {
  std::vector<std::pair<Parcel, int>> sent;  // in order, with the sender's step
  std::vector<int> received_at;              // by parcel: the receiver's step
};

// Returns the most messages of a channel that are under way at a time.
int depth_of(const ChannelKey& key, const Traffic& traffic, const Timing& timing) {
  const auto& [from, to, direction] = key;
  const auto step_of = [&](int rank, int step) {
    return timing.ranks[static_cast<size_t>(rank)].steps[static_cast<size_t>(step)];
  };
  std::vector<std::pair<double, int>> changes;
  for (size_t i = 0; i < traffic.sent.size(); ++i) {
    changes.emplace_back(step_of(from, traffic.sent[i].second).end, 1);
    changes.emplace_back(step_of(to, traffic.received_at[i]).begin, -1);
  }
  std::ranges::sort(changes, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;  // at one time, messages come before they go
  });
  int under_way = 0, most = 1;
  for (const auto& [time, change] : changes) most = std::max(most, under_way += change);
  return most;
}

// Gives the actions of a rank the depths of its channels.
void set_depths(int rank, const std::map<ChannelKey, Traffic>& channels, const Timing& timing, std::vector<Action>& actions) {
  std::map<ChannelKey, int> depths;
  for (const auto& [key, traffic] : channels) depths[key] = depth_of(key, traffic, timing);
  const Transfers& kinds = Transfers::get();
  for (Action& action : actions) {
    const auto message = message_of(action);
    if (!message) continue;
    const bool is_value = action.kind == kinds.send || action.kind == kinds.recv;
    const Direction direction = is_value ? Direction::forward : Direction::backward;
    const int depth =
        depths.at(message->is_send ? ChannelKey(rank, message->peer, direction) : ChannelKey(message->peer, rank, direction));
    if (depth > 1) action.attrs["depth"] = depth;
  }
}

class Lowering {
 public:
  Lowering(const PipelineSchedule& schedule, const Cut& cut, Mode mode)
      : cut_(cut), mode_(mode), layers_(schedule, cut), messages_(schedule, cut), timing_(time_schedule(schedule)) {}

  // Of the other ranks it needs only what they send to this one and receive from it.
  std::vector<Action> run(int rank) {
    const std::vector<LayerRun> mine = layers_.of(rank);
    std::map<int, std::vector<ChannelKey>> from;  // by sender
    for (const LayerRun& layer : mine) {
      for (const auto& [key, parcel] : messages_.sent_after(layer, rank)) traffic_[key].sent.emplace_back(parcel, layer.step);
      for (const auto& [key, parcel] : messages_.needed_before(layer, rank)) {
        std::vector<ChannelKey>& keys = from[std::get<0>(key)];
        if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
      }
    }
    for (auto& [key, traffic] : traffic_) note_received(key, traffic);
    for (const auto& [sender, keys] : from) note_sent(sender, keys);
    std::vector<Action> actions = write(rank, mine);
    set_depths(rank, traffic_, timing_, actions);
    return actions;
  }

 private:
  // Notes what another rank sends in these channels.
  void note_sent(int sender, const std::vector<ChannelKey>& keys) {
    for (const LayerRun& layer : layers_.of(sender)) {
      for (const auto& [key, parcel] : messages_.sent_after(layer, sender)) {
        if (std::ranges::find(keys, key) != keys.end()) traffic_[key].sent.emplace_back(parcel, layer.step);
      }
    }
  }

  // Notes when the channel's receiver takes its messages: in the order in which they were sent, each one that it needs with those
  // before it.
  void note_received(const ChannelKey& key, Traffic& traffic) const {
    const int receiver = std::get<1>(key);
    std::set<Parcel> arrived;
    for (const LayerRun& layer : layers_.of(receiver)) {
      for (const auto& [needed, parcel] : messages_.needed_before(layer, receiver)) {
        while (needed == key && !arrived.contains(parcel)) {
          arrived.insert(traffic.sent.at(traffic.received_at.size()).first);
          traffic.received_at.push_back(layer.step);
        }
      }
    }
  }

  // Returns the actions of a rank, with channels of depth 1.
  std::vector<Action> write(int rank, const std::vector<LayerRun>& layers) {
    std::vector<Action> actions;
    std::set<std::pair<ChannelKey, Parcel>> arrived;
    const auto frees = frees_of(rank, layers);
    for (int index = 0; index < static_cast<int>(layers.size()); ++index) {
      const LayerRun& layer = layers[static_cast<size_t>(index)];
      for (const auto& [key, parcel] : messages_.needed_before(layer, rank)) {
        while (!arrived.contains({key, parcel})) arrived.insert({key, receive(key, layer.step, actions)});
      }
      actions.push_back({.kind = layer.kind, .target = layer.position, .micro_batch = layer.micro_batch});
      if (mode_ != Mode::train) actions.back().attrs["keep"] = "none";
      const auto sent = messages_.sent_after(layer, rank);
      for (size_t i = 0; i < sent.size(); ++i) {
        const auto& [from, to, direction] = sent[i].first;
        const bool is_value = direction == Direction::forward;
        actions.push_back(transfer(is_value ? Transfers::get().send : Transfers::get().send_grad, sent[i].second, to));
        const bool is_last = i + 1 == sent.size();
        if (is_value && is_last && !messages_.is_read_by(rank, layer.position)) actions.back().attrs["free"] = true;
      }
      const auto [begin, end] = frees.equal_range(index);
      for (auto free = begin; free != end; ++free)
        actions.push_back({.kind = Transfers::get().free, .target = free->second, .micro_batch = layer.micro_batch});
    }
    return actions;
  }

  // Takes the next message of a channel.
  Parcel receive(const ChannelKey& key, int step, std::vector<Action>& actions) {
    Traffic& traffic = traffic_.at(key);
    const Parcel parcel = traffic.sent.at(traffic.received_at.size()).first;
    traffic.received_at.push_back(step);
    const auto& [from, to, direction] = key;
    const Transfers& kinds = Transfers::get();
    actions.push_back(transfer(direction == Direction::forward ? kinds.recv : kinds.recv_grad, parcel, from));
    return parcel;
  }

  Action transfer(KindId kind, const Parcel& parcel, int peer) const {
    const bool is_send = kind == Transfers::get().send || kind == Transfers::get().send_grad;
    Action action{.kind = kind, .target = parcel.position, .micro_batch = parcel.micro_batch};
    action.attrs = {{is_send ? "to" : "from", peer}};
    action.set_axes(cut_.axes);
    return action;
  }

  // Returns the positions whose outputs are dropped after a layer, by the layer's index: values of other ranks after their last
  // use here; in an evaluation, which has no backwards, also own values that are sent.
  std::multimap<int, int> frees_of(int rank, const std::vector<LayerRun>& layers) const {
    std::map<std::pair<int, int>, int> last;  // by position and micro-batch: index of the last layer that may read it
    for (int index = 0; index < static_cast<int>(layers.size()); ++index) {
      const LayerRun& layer = layers[static_cast<size_t>(index)];
      const bool ends_use = mode_ == Mode::train ? is_backward(layer) : layer.kind == Kinds::get().forward;
      for (const int source : messages_.flows().sources(layer.position)) {
        const bool is_own = messages_.owner_of(source) == rank;
        if (ends_use && (!is_own || (mode_ != Mode::train && messages_.flows().of(source))))
          last[{source, layer.micro_batch}] = index;
      }
    }
    std::multimap<int, int> frees;
    for (const auto& [place, index] : last) frees.emplace(index, place.first);
    return frees;
  }

  const Cut& cut_;
  Mode mode_;
  RankLayers layers_;
  LayerMessages messages_;
  Timing timing_;
  std::map<ChannelKey, Traffic> traffic_;  // of the channels of this rank
};

}  // namespace

std::vector<Action> lower(const PipelineSchedule& schedule, const Cut& cut, Mode mode, int rank) {
  return Lowering(schedule, cut, mode).run(rank);
}

}  // namespace zt::pipe
