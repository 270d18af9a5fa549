// Which works in flight an action waits for: the one rule of the executor and of the player.
#pragma once

#include <span>
#include <vector>

#include "program/resource_ids.h"

namespace zt {

// The works in flight, which are numbers of the caller, by the resources that they hold. Two actions conflict if both touch a
// resource and at least one of them writes or frees it.
class ConflictTable {
 public:
  ConflictTable() = default;
  // `declared`: the resources of each action.
  ConflictTable(std::vector<Resources> declared, const BufferOf& buffer_of);

  // Returns whether the action touches nothing, so that nothing waits for its works.
  bool is_free(int action) const { return touched_[action].read.empty() && touched_[action].written.empty(); }
  // Calls visit(work) for the works that the action conflicts with, some of them more than once, until it returns false. Returns
  // the last result, or true.
  template <class Visit>
  bool for_each_conflict(int action, Visit visit) const {
    const auto all = [&](const std::vector<int>& works) {
      for (const int work : works) {
        if (!visit(work)) return false;
      }
      return true;
    };
    for (const int id : touched_[action].read) {
      if (!all(holders_[id].writers)) return false;
    }
    for (const int id : touched_[action].written) {
      if (!all(holders_[id].writers) || !all(holders_[id].readers)) return false;
    }
    return true;
  }
  // Returns one work that the action conflicts with, or -1.
  int conflict(int action) const {
    int found = -1;
    for_each_conflict(action, [&](int work) { return found = work, false; });
    return found;
  }
  // Add and remove a work of the action.
  void hold(int action, int work);
  void release(int action, int work);

 private:
  // Dense ids of resources, each in one of the lists.
  struct Touched {
    std::vector<int> read, written;
  };
  struct Holders {
    std::vector<int> writers, readers;
  };

  std::vector<Touched> touched_;  // by action
  std::vector<Holders> holders_;  // by id
};

}  // namespace zt
