#include "conflict_table.h"

#include <algorithm>

namespace zt {

ConflictTable::ConflictTable(std::vector<Resources> declared, const BufferOf& buffer_of) {
  for (Resources& resources : declared) {
    resources.writes.insert(resources.writes.end(), resources.frees.begin(), resources.frees.end());
    resources.frees.clear();
    if (!buffer_of) continue;
    for (auto* list : {&resources.reads, &resources.writes}) std::ranges::transform(*list, list->begin(), buffer_of);
  }
  const ResourceIds ids(declared);
  for (const Resources& resources : declared) {
    Touched& touched = touched_.emplace_back();
    touched.written = ids.of(resources.writes);
    touched.read = ids.of(resources.reads, touched.written);
  }
  holders_.resize(static_cast<size_t>(ids.size()));
}

void ConflictTable::hold(int action, int work) {
  for (const int id : touched_[action].written) holders_[id].writers.push_back(work);
  for (const int id : touched_[action].read) holders_[id].readers.push_back(work);
}

void ConflictTable::release(int action, int work) {
  for (const int id : touched_[action].written) std::erase(holders_[id].writers, work);
  for (const int id : touched_[action].read) std::erase(holders_[id].readers, work);
}

}  // namespace zt
