#include "move/values.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace zt::offload {

namespace {

struct MovedItem {
  int micro_batch, position;
  StepData data;
  auto operator<=>(const MovedItem&) const = default;
};

// The actions between which an item is not needed, and where it is fetched.
struct Away {
  MovedItem item;
  int last_use, next_use;
  int fetched = -1;
};

// Finds which items each action uses.
class StepUses {
 public:
  StepUses(const RankProgram& program, const ModelInfo& model) : program_(program), model_(model) {
    for (int i = 0; i < static_cast<int>(program.actions.size()); ++i) note(i);
  }

  // Returns where items that are used in backwards wait for these.
  std::vector<Away> find_waits() const {
    std::vector<Away> waits;
    for (const auto& [item, uses] : uses_) {
      if (sent_.contains(item)) continue;
      const auto next = std::ranges::find_if(uses, [&](int action) { return is_of_backward(action); });
      if (next != uses.end() && next != uses.begin()) waits.push_back({item, *std::prev(next), *next});
    }
    return waits;
  }
  // Returns how many layers run after one action and before another.
  int layers_between(int first, int last) const {
    return static_cast<int>(std::ranges::count_if(compute_, [&](int action) { return first < action && action < last; }));
  }
  // Returns the last action before this one that runs a layer; -1 if there is none.
  int layer_before(int action) const {
    const auto found = std::ranges::lower_bound(compute_, action);
    return found == compute_.begin() ? -1 : *std::prev(found);
  }

 private:
  bool is_of_backward(int action) const {
    const Kinds& kinds = Kinds::get();
    const KindId kind = program_.actions[static_cast<size_t>(action)].kind;
    return kind == kinds.recompute || kind == kinds.backward || kind == kinds.input_grad;
  }

  // An autograd graph refers to the inputs and outputs of its layer.
  void note(int index) {
    const Kinds& kinds = Kinds::get();
    const Action& action = program_.actions[static_cast<size_t>(index)];
    if (role_of(action) == Role::compute) compute_.push_back(index);
    std::set<MovedItem> used;
    const Resources declared = resources_of(action, model_);
    for (const auto* list : {&declared.reads, &declared.writes}) {
      for (const Resource& resource : *list) {
        if (resource.type == resource::value) used.insert({resource.micro_batch, resource.index, StepData::value});
      }
    }
    if (action.kind == kinds.forward && action.keep() == Keep::graph)
      used.insert({action.micro_batch, action.target, StepData::graph});
    if (action.kind == kinds.backward || action.kind == kinds.input_grad) {
      used.insert({action.micro_batch, action.target, StepData::value});
      used.insert({action.micro_batch, action.target, StepData::graph});
      for (const Edge& edge : model_.positions[static_cast<size_t>(action.target)].inputs)
        used.insert({action.micro_batch, edge.position, StepData::value});
    }
    for (const MovedItem& item : used) {
      uses_[item].push_back(index);
      if (const auto message = message_of(action); message && message->is_send) sent_.insert(item);
    }
  }

  const RankProgram& program_;
  const ModelInfo& model_;
  std::map<MovedItem, std::vector<int>> uses_;
  std::set<MovedItem> sent_;  // a message may be under way until another rank takes part: nothing may wait for its end before
  std::vector<int> compute_;  // ascending
};

// Leaves out what stays: of each micro-batch, the last positions.
void leave_last(std::vector<Away>& waits, int stay) {
  std::map<int, std::set<int>> positions;  // by micro-batch
  for (const Away& away : waits) positions[away.item.micro_batch].insert(away.item.position);
  std::erase_if(waits, [&](const Away& away) {
    const std::set<int>& all = positions[away.item.micro_batch];
    return std::distance(all.find(away.item.position), all.end()) <= stay;
  });
}

// Chooses where what waits is fetched: what a backward needs, before the backward that needed something before it. Leaves out
// what would come back at once.
std::vector<Away> with_fetches(std::vector<Away> waits, const StepUses& uses) {
  std::ranges::stable_sort(waits, {}, &Away::next_use);
  std::vector<Away> chosen;
  int before = -1, current = -1;  // the last two different actions that need something
  for (Away& away : waits) {
    const int ahead = current == away.next_use ? before : current;
    away.fetched = std::max(away.last_use + 1, ahead > away.last_use ? ahead : uses.layer_before(away.next_use));
    if (uses.layers_between(away.last_use, away.fetched) == 0) continue;
    if (current != away.next_use) before = std::exchange(current, away.next_use);
    chosen.push_back(away);
  }
  return chosen;
}

}  // namespace

void insert_value_moves(RankProgram& program, const ModelInfo& model, const ValueMoves& moves) {
  const StepUses uses(program, model);
  std::vector<Away> waits = uses.find_waits();
  leave_last(waits, moves.stay);
  std::set<int> positions;
  for (const Away& away : waits) positions.insert(away.item.position);
  const size_t n = program.actions.size();
  std::vector<std::vector<Action>> before(n), after(n);
  for (const Away& away : with_fetches(std::move(waits), uses)) {
    const auto place = std::distance(positions.begin(), positions.find(away.item.position)) % 2;
    const auto slot = moves.first_slot + 2 * static_cast<int64_t>(away.item.data) + place;
    Action action{.target = away.item.position, .micro_batch = away.item.micro_batch};
    action.attrs = {{"what", word_of(away.item.data)}, {"home", word_of(moves.tier)}, {"slot", slot}};
    action.kind = Kinds::get().fetch_value;
    before[static_cast<size_t>(away.fetched)].push_back(action);
    action.kind = Kinds::get().evict_value;
    if (moves.least > 0) action.attrs["least"] = moves.least;
    after[static_cast<size_t>(away.last_use)].push_back(std::move(action));
  }
  insert_around(program, std::move(before), std::move(after));
}

}  // namespace zt::offload
