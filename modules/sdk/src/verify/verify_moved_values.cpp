#include <map>
#include <set>
#include <tuple>

#include "verify.h"

namespace zt::verifier {

namespace {

// Follows the data of a step that EVICT_VALUE takes out of memory: what is taken is there, and is back when it is used. That
// values are there which an action declares to read is checked with all values.
class MovedValueCheck : RankCheck {
 public:
  MovedValueCheck(const Subject& subject, Findings& findings) : RankCheck(subject, findings) {
    for (const Action& action : subject.program.actions) {
      if (action.kind == Kinds::get().fetch || action.kind == Kinds::get().evict) unit_slots_.insert(action.number("slot", 0));
    }
  }

  void run() {
    const Kinds& kinds = Kinds::get();
    for (int step = 0; step < subject_.size(); ++step) {
      const Action& action = subject_.action(step);
      if (action.kind == kinds.evict_value) evict(step);
      else if (action.kind == kinds.fetch_value) fetch(step);
      else if (action.kind == kinds.backward || action.kind == kinds.input_grad) use_graph(step);
      else note_values(step);
    }
    for (const auto& [key, step] : away_)
      say(step, "what it takes does not come back: add FETCH_VALUE {} {}, or remove this", std::get<0>(key), std::get<1>(key));
  }

 private:
  using Key = std::tuple<int, int, StepData>;  // position, micro-batch

  Key key_of(int step) const {
    return {subject_.action(step).target, subject_.action(step).micro_batch, subject_.action(step).step_data()};
  }

  // Notes which values and graphs are there.
  void note_values(int step) {
    const Action& action = subject_.action(step);
    const bool keeps_no_graph = action.kind == Kinds::get().forward && action.keep() != Keep::graph;
    if (const auto message = message_of(action); message && message->is_send) {
      for (const Resource& read : subject_.resources[static_cast<size_t>(step)].reads) {
        if (read.type == resource::value) sent_[{read.index, read.micro_batch, StepData::value}] = step;
      }
    }
    for (const Resource& written : subject_.resources[static_cast<size_t>(step)].writes) {
      const auto away = away_.find({written.index, written.micro_batch, StepData::value});
      if (written.type == resource::value && away != away_.end())
        say(step, "it writes the value of {}, which {} has taken: put FETCH_VALUE {} {} before", subject_.position(written.index),
            subject_.at(away->second), written.index, written.micro_batch);
      if (written.type == resource::value) made_.insert({written.index, written.micro_batch, StepData::value});
      if (written.type == resource::graph && !keeps_no_graph) made_.insert({written.index, written.micro_batch, StepData::graph});
    }
  }

  void evict(int step) {
    const Key key = key_of(step);
    const auto& [position, micro_batch, data] = key;
    check_slot(step);
    if (const auto known = away_.find(key); known != away_.end())
      return say(step, "{} has taken it already: remove this", subject_.at(known->second));
    if (!made_.contains(key))
      return say(step, "there is no {} of {} at this place: put it between its F{} and its B", word_of(data),
                 subject_.position(position), data == StepData::graph ? ", which has to keep the graph," : "");
    if (const auto sent = sent_.find(key); sent != sent_.end())
      return say(step, "{} sends it, which may last until the other rank goes on: remove this", subject_.at(sent->second));
    away_[key] = step;
  }

  void fetch(int step) {
    check_slot(step);
    if (away_.erase(key_of(step)) == 0) say(step, "it brings back what is in memory: put it after its EVICT_VALUE, or remove it");
  }

  void check_slot(int step) {
    const int64_t slot = subject_.action(step).number("slot", 0);
    if (unit_slots_.contains(slot)) say(step, "slot {} is used for data of units: give another slot", slot);
  }

  // An autograd graph refers to its inputs and its outputs.
  void use_graph(int step) {
    const Action& action = subject_.action(step);
    std::set<Key> used{{action.target, action.micro_batch, StepData::graph},
                       {action.target, action.micro_batch, StepData::value}};
    for (const Edge& edge : subject_.model.positions[static_cast<size_t>(action.target)].inputs)
      used.insert({edge.position, action.micro_batch, StepData::value});
    for (const Key& key : used) {
      const auto known = away_.find(key);
      if (known == away_.end()) continue;
      const auto& [position, micro_batch, data] = key;
      say(step, "it needs the {} of {}, which {} has taken: put FETCH_VALUE {} {} before", word_of(data),
          subject_.position(position), subject_.at(known->second), position, micro_batch);
      away_.erase(known);
    }
    made_.erase({action.target, action.micro_batch, StepData::graph});
    made_.erase({action.target, action.micro_batch, StepData::value});
  }

  std::set<Key> made_;
  std::map<Key, int> away_;  // the EVICT_VALUE that has taken it
  std::map<Key, int> sent_;  // the values, by the action that sends them
  std::set<int64_t> unit_slots_;
};

}  // namespace

void check_moved_values(const Subject& subject, Findings& findings) {
  MovedValueCheck(subject, findings).run();
}

}  // namespace zt::verifier
