#include "micro_batches_alike.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace zt {

namespace {

constexpr int kRunMicroBatches = 2;

// Actions with equal counterparts are alike. One of a later micro-batch has the counterpart of the last micro-batch that is run.
using Counterpart = std::tuple<KindId, int, int, std::string>;

Counterpart counterpart_of(const Action& action) {
  return {action.kind, action.target, std::min(action.micro_batch, kRunMicroBatches - 1), action.attr("what")};
}

}  // namespace

bool are_alike(const std::vector<Batch>& micro_batches) {
  return std::ranges::all_of(micro_batches, [&](const Batch& batch) { return has_shapes_of(batch, micro_batches.front()); });
}

// Schedules may split some backwards only. Places through which data leave are taken in turns, whatever the micro-batch.
bool stands_for_all(const RankProgram& program) {
  if (program.micro_batches <= kRunMicroBatches || moves_values(program)) return false;
  std::set<Counterpart> run;
  for (const Action& action : program.actions) {
    if (action.micro_batch < kRunMicroBatches) run.insert(counterpart_of(action));
  }
  return std::ranges::all_of(program.actions, [&](const Action& action) { return run.contains(counterpart_of(action)); });
}

RankProgram first_micro_batches(const RankProgram& program) {
  RankProgram part = program;
  part.micro_batches = kRunMicroBatches;
  std::erase_if(part.actions, [](const Action& action) { return action.micro_batch >= kRunMicroBatches; });
  return part;
}

Rehearsal extended(const RankProgram& program, const RankProgram& part, const Rehearsal& of_part) {
  std::map<Counterpart, size_t> counterparts;
  std::vector<size_t> others;  // actions without a micro-batch, in order
  for (size_t i = 0; i < part.actions.size(); ++i) {
    const Action& action = part.actions[i];
    if (action.micro_batch < 0) others.push_back(i);
    else counterparts[counterpart_of(action)] = i;
  }
  Rehearsal whole;
  int64_t held = 0;
  size_t other = 0;
  for (const Action& action : program.actions) {
    const size_t i = action.micro_batch < 0 ? others[other++] : counterparts.at(counterpart_of(action));
    RehearsedAction like = of_part.actions[i];
    const int64_t before = i == 0 ? 0 : of_part.actions[i - 1].held;
    like.peak += held - before;
    like.held += held - before;
    held = like.held;
    whole.actions.push_back(like);
  }
  return whole;
}

}  // namespace zt
