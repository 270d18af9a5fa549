#include "work_list.h"

#include <algorithm>

namespace zt {

WorkList::WorkList(const RankProgram& program, const ModelInfo& model, const BufferOf& buffer_of) {
  std::vector<Resources> resources;
  for (const Action& action : program.actions) resources.push_back(resources_of(action, model));
  conflicts_ = ConflictTable(std::move(resources), buffer_of);
}

bool WorkList::await(int work, double& now) const {
  if (!works_[work].is_known) return false;
  now = std::max(now, works_[work].end);
  return true;
}

bool WorkList::await_conflicts(int step, double& now) {
  if (conflicts_.empty()) return true;
  double ready = now;
  awaited_.clear();
  const bool all_known = conflicts_.for_each_conflict(step, [&](int work) {
    awaited_.push_back(work);
    return await(work, ready);
  });
  if (!all_known) return false;
  for (const int work : awaited_) conflicts_.release(works_[work].step, work);
  now = ready;
  return true;
}

bool WorkList::await_unneeded(double& now) {
  for (const int work : unneeded_) {
    if (!await(work, now)) return false;
  }
  unneeded_.clear();
  return true;
}

int WorkList::add(int step) {
  const int work = static_cast<int>(works_.size());
  works_.push_back({.step = step});
  conflicts_.hold(step, work);
  if (conflicts_.is_free(step)) unneeded_.push_back(work);
  return work;
}

void WorkList::finish(int work, double end) {
  works_[work].is_known = true;
  works_[work].end = end;
}

}  // namespace zt
