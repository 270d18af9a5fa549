#include "lowering.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "flows.h"
#include "schedule/timing.h"
#include "transfers.h"
#include "zt/program/micro_batch_pairs.h"
#include "zt/program/split_backward.h"

namespace zt::pipe {

namespace {

// One layer of a rank's list.
struct LayerRun {
  KindId kind;
  int position, micro_batch, stage;
  int step;  // of the schedule
};

enum class Direction : uint8_t { forward, backward };
using ChannelKey = std::tuple<int, int, Direction>;  // from rank, to rank

// The content of a message. `stage`: of a gradient, the stage that sends it; of a value 0.
struct Parcel {
  int position, micro_batch, stage;
  auto operator<=>(const Parcel&) const = default;
};
struct Traffic {
  std::vector<std::pair<Parcel, int>> sent;  // in order, with the sender's step
  std::vector<int> received_at;              // by parcel: the receiver's step
};

class Lowering {
 public:
  Lowering(const PipelineSchedule& schedule, const Cut& cut, Mode mode)
      : schedule_(schedule),
        cut_(cut),
        mode_(mode),
        flows_(cut.model, cut.partition),
        timing_(time_schedule(schedule)),
        has_inputs_in_order_(find_inputs_in_order(schedule)) {}

  // Of the other ranks it needs only what they send to this one and receive from it.
  std::vector<Action> run(int rank) {
    const std::vector<LayerRun> mine = layers_of(rank);
    std::map<int, std::vector<ChannelKey>> from;  // by sender
    for (const LayerRun& layer : mine) {
      for (const auto& [key, parcel] : sent_after(layer, rank)) traffic_[key].sent.emplace_back(parcel, layer.step);
      for (const auto& [key, parcel] : needed_before(layer, rank)) {
        std::vector<ChannelKey>& keys = from[std::get<0>(key)];
        if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
      }
    }
    for (auto& [key, traffic] : traffic_) note_received(key, traffic);
    for (const auto& [sender, keys] : from) note_sent(sender, keys);
    std::vector<Action> actions = write(rank, mine);
    set_depths(rank, actions);
    return actions;
  }

 private:
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }
  int owner_of(int position) const { return rank_of(flows_.stage_of(position)); }

  // Returns the layers of a task: forwards in order of positions, backwards from the last one.
  std::vector<LayerRun> layers_of(const Task& task, int step) const {
    const Kinds& kinds = Kinds::get();
    std::vector<LayerRun> layers;
    const auto stage = static_cast<size_t>(task.stage);
    for (int p = cut_.partition[stage]; p < cut_.partition[stage + 1]; ++p) {
      const bool splits = is_split(p, task.stage);
      KindId kind = kinds.forward;
      if (task.kind == TaskKind::backward || (task.kind == TaskKind::input_grad && !splits)) kind = kinds.backward;
      else if (task.kind == TaskKind::input_grad) kind = kinds.input_grad;
      else if (task.kind == TaskKind::weight_grad) kind = kinds.weight_grad;
      if (task.kind == TaskKind::weight_grad && !splits) continue;
      layers.push_back({kind, p, task.micro_batch, task.stage, step});
    }
    if (task.kind != TaskKind::forward) std::ranges::reverse(layers);
    return layers;
  }

  // The gradients of a layer that runs all of its backward in I are summed in the order of the I's, so it is split if that is not
  // the order of micro-batches.
  bool is_split(int position, int stage) const {
    const PositionInfo& info = cut_.model.positions[static_cast<size_t>(position)];
    const bool has_weights =
        std::ranges::any_of(info.units, [&](int unit) { return cut_.model.units[static_cast<size_t>(unit)].trainable; });
    return can_split_backward(info, cut_.model) || (has_weights && !has_inputs_in_order_[static_cast<size_t>(stage)]);
  }

  // Returns, by stage, whether its backwards for the inputs come in the order of micro-batches.
  static std::vector<bool> find_inputs_in_order(const PipelineSchedule& schedule) {
    std::vector<bool> in_order(static_cast<size_t>(schedule.stages()), true);
    std::vector<int> latest(in_order.size(), -1);
    for (const auto& steps : schedule.ranks) {
      for (const PipelineStep& step : steps) {
        for_each_task(step, [&](const Task& task) {
          if (task.kind == TaskKind::forward || task.kind == TaskKind::weight_grad) return;
          const auto stage = static_cast<size_t>(task.stage);
          if (task.micro_batch < latest[stage]) in_order[stage] = false;
          latest[stage] = task.micro_batch;
        });
      }
    }
    return in_order;
  }

  std::vector<LayerRun> layers_of(int rank) const {
    std::vector<LayerRun> layers;
    const auto& steps = schedule_.ranks[static_cast<size_t>(rank)];
    for (int index = 0; index < static_cast<int>(steps.size()); ++index) {
      const PipelineStep& step = steps[static_cast<size_t>(index)];
      const auto first = layers_of(step.task, index);
      const auto second = step.beside ? layers_of(*step.beside, index) : std::vector<LayerRun>();
      const auto merged =
          take_turns(first, second, [&, has_exchanges = exchanges(first) || exchanges(second)](const LayerRun& layer) {
            return !has_exchanges || is_exchange(layer);
          });
      layers.insert(layers.end(), merged.begin(), merged.end());
    }
    return layers;
  }

  // Whether the layer's tensors are under way after it, so that another task may compute.
  bool is_exchange(const LayerRun& layer) const {
    return cut_.model.positions[static_cast<size_t>(layer.position)].exchanges && layer.kind != Kinds::get().weight_grad;
  }
  bool exchanges(const std::vector<LayerRun>& layers) const {
    return std::ranges::any_of(layers, [&](const LayerRun& layer) { return is_exchange(layer); });
  }

  bool is_backward(const LayerRun& layer) const {
    return layer.kind == Kinds::get().backward || layer.kind == Kinds::get().input_grad;
  }

  // Returns what the rank sends after a layer.
  std::vector<std::pair<ChannelKey, Parcel>> sent_after(const LayerRun& layer, int rank) const {
    std::vector<std::pair<ChannelKey, Parcel>> sent;
    const Flow* flow = flows_.of(layer.position);
    if (layer.kind == Kinds::get().forward && flow) {
      std::set<int> known{rank};
      for (const int stage : flow->stages) {
        if (known.insert(rank_of(stage)).second)
          sent.push_back({{rank, rank_of(stage), Direction::forward}, {layer.position, layer.micro_batch, 0}});
      }
    }
    if (!is_backward(layer)) return sent;
    for (const int source : flows_.grad_sources(layer.position)) {
      const Flow* of_source = flows_.of(source);
      const int place = of_source ? of_source->place_of(layer.stage) : -1;
      if (place < 1) continue;
      const int to = rank_of(of_source->grad_stages[static_cast<size_t>(place) - 1]);
      const bool is_last_part = of_source->first_readers[static_cast<size_t>(place) - 1] == layer.position;
      if (to != rank && is_last_part) sent.push_back({{rank, to, Direction::backward}, {source, layer.micro_batch, layer.stage}});
    }
    return sent;
  }

  // Returns the messages that must be there before a layer runs.
  std::vector<std::pair<ChannelKey, Parcel>> needed_before(const LayerRun& layer, int rank) const {
    std::vector<std::pair<ChannelKey, Parcel>> needed;
    if (layer.kind == Kinds::get().forward) {
      for (const int source : flows_.sources(layer.position)) {
        if (owner_of(source) != rank)
          needed.push_back({{owner_of(source), rank, Direction::forward}, {source, layer.micro_batch, 0}});
      }
    }
    if (!is_backward(layer)) return needed;
    const auto need_gradient = [&](int source) {
      const Flow* flow = flows_.of(source);
      const int place = flow ? flow->place_of(layer.stage) : -1;
      if (place < 0 || place + 1 == static_cast<int>(flow->grad_stages.size())) return;
      const int next = flow->grad_stages[static_cast<size_t>(place) + 1];
      if (rank_of(next) != rank)
        needed.push_back({{rank_of(next), rank, Direction::backward}, {source, layer.micro_batch, next}});
    };
    for (const int source : flows_.grad_sources(layer.position)) need_gradient(source);
    need_gradient(layer.position);
    return needed;
  }

  // Notes what another rank sends in these channels.
  void note_sent(int sender, const std::vector<ChannelKey>& keys) {
    for (const LayerRun& layer : layers_of(sender)) {
      for (const auto& [key, parcel] : sent_after(layer, sender)) {
        if (std::ranges::find(keys, key) != keys.end()) traffic_[key].sent.emplace_back(parcel, layer.step);
      }
    }
  }

  // Notes when the channel's receiver takes its messages: in the order in which they were sent, each one that it needs with those
  // before it.
  void note_received(const ChannelKey& key, Traffic& traffic) const {
    const int receiver = std::get<1>(key);
    std::set<Parcel> arrived;
    for (const LayerRun& layer : layers_of(receiver)) {
      for (const auto& [needed, parcel] : needed_before(layer, receiver)) {
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
      for (const auto& [key, parcel] : needed_before(layer, rank)) {
        while (!arrived.contains({key, parcel})) arrived.insert({key, receive(key, layer.step, actions)});
      }
      actions.push_back({.kind = layer.kind, .target = layer.position, .micro_batch = layer.micro_batch});
      const auto sent = sent_after(layer, rank);
      for (size_t i = 0; i < sent.size(); ++i) {
        const auto& [from, to, direction] = sent[i].first;
        const bool is_value = direction == Direction::forward;
        actions.push_back(transfer(is_value ? Transfers::get().send : Transfers::get().send_grad, sent[i].second, to));
        const bool is_last = i + 1 == sent.size();
        if (is_value && is_last && !is_read_by(rank, layer.position)) actions.back().attrs["free"] = true;
      }
      const auto [begin, end] = frees.equal_range(index);
      for (auto free = begin; free != end; ++free)
        actions.push_back(make_transfer(Transfers::get().free, free->second, layer.micro_batch, {}));
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
    return make_transfer(kind, parcel.position, parcel.micro_batch, {cut_.axes, peer, 1});
  }

  bool is_read_by(int rank, int position) const {
    return std::ranges::any_of(flows_.readers(position), [&](int reader) { return owner_of(reader) == rank; });
  }

  // Returns the positions whose outputs are dropped after a layer, by the layer's index: values of other ranks after their last
  // use here; in an evaluation, which has no backwards, also own values that are sent.
  std::multimap<int, int> frees_of(int rank, const std::vector<LayerRun>& layers) const {
    std::map<std::pair<int, int>, int> last;  // by position and micro-batch: index of the last layer that may read it
    for (int index = 0; index < static_cast<int>(layers.size()); ++index) {
      const LayerRun& layer = layers[static_cast<size_t>(index)];
      const bool ends_use = mode_ == Mode::train ? is_backward(layer) : layer.kind == Kinds::get().forward;
      for (const int source : flows_.sources(layer.position)) {
        const bool is_own = owner_of(source) == rank;
        if (ends_use && (!is_own || (mode_ != Mode::train && flows_.of(source)))) last[{source, layer.micro_batch}] = index;
      }
    }
    std::multimap<int, int> frees;
    for (const auto& [place, index] : last) frees.emplace(index, place.first);
    return frees;
  }

  void set_depths(int rank, std::vector<Action>& actions) const {
    std::map<ChannelKey, int> depths;
    for (const auto& [key, traffic] : traffic_) depths[key] = depth_of(key, traffic);
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

  // Returns the most messages that are under way at a time.
  int depth_of(const ChannelKey& key, const Traffic& traffic) const {
    const auto& [from, to, direction] = key;
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

  const TimedStep& step_of(int rank, int step) const {
    return timing_.ranks[static_cast<size_t>(rank)].steps[static_cast<size_t>(step)];
  }

  const PipelineSchedule& schedule_;
  const Cut& cut_;
  Mode mode_;
  Flows flows_;
  Timing timing_;
  std::vector<bool> has_inputs_in_order_;
  std::map<ChannelKey, Traffic> traffic_;  // of the channels of this rank
};

}  // namespace

std::vector<Action> lower(const PipelineSchedule& schedule, const Cut& cut, Mode mode, int rank) {
  return Lowering(schedule, cut, mode).run(rank);
}

}  // namespace zt::pipe
