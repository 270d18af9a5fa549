#include "work_list.h"

#include <algorithm>

#include "program/resource_ids.h"

namespace zt {

WorkList::WorkList(const Program& program, const ModelInfo& model, const std::function<Resource(const Resource&)>& buffer_of) {
  std::vector<Resources> resources;
  for (const Action& action : program.actions) {
    Resources& declared = resources.emplace_back(resources_of(action, model));
    declared.writes.insert(declared.writes.end(), declared.frees.begin(), declared.frees.end());
    declared.frees.clear();
    if (!buffer_of) continue;
    for (auto* list : {&declared.reads, &declared.writes}) std::ranges::transform(*list, list->begin(), buffer_of);
  }
  const ResourceIds ids(resources);
  for (const Resources& declared : resources) {
    Touched& touched = touched_.emplace_back();
    touched.written = ids.of(declared.writes);
    touched.read = ids.of(declared.reads, touched.written);
  }
  holders_.resize(static_cast<size_t>(ids.size()));
}

bool WorkList::await(const std::vector<int>& works, double& now) const {
  for (const int work : works) {
    if (!works_[work].is_known) return false;
    now = std::max(now, works_[work].end);
  }
  return true;
}

bool WorkList::await_conflicts(int step, double& now) {
  if (touched_.empty()) return true;
  const Touched& touched = touched_[step];
  double ready = now;
  for (const int id : touched.read) {
    if (!await(holders_[id].writers, ready)) return false;
  }
  for (const int id : touched.written) {
    if (!await(holders_[id].writers, ready) || !await(holders_[id].readers, ready)) return false;
  }
  for (const int id : touched.read) holders_[id].writers.clear();
  for (const int id : touched.written) holders_[id] = {};
  now = ready;
  return true;
}

bool WorkList::await_unneeded(double& now) {
  if (!await(unneeded_, now)) return false;
  unneeded_.clear();
  return true;
}

int WorkList::add(int step) {
  const int work = static_cast<int>(works_.size());
  works_.emplace_back();
  const Touched& touched = touched_[step];
  for (const int id : touched.written) holders_[id].writers.push_back(work);
  for (const int id : touched.read) holders_[id].readers.push_back(work);
  if (touched.written.empty() && touched.read.empty()) unneeded_.push_back(work);
  return work;
}

}  // namespace zt
