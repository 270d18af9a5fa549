#include "shm/windows.h"

#include "shm/share.h"

namespace zt::comm {

std::shared_ptr<SharedMemory> Windows::create(size_t bytes) {
  const auto own = std::make_shared<SharedMemory>();
  add(own, open_others(team_, [&] {
        *own = SharedMemory::create(bytes, Pages::now);
        return own->address();
      }));
  return own;
}

void Windows::adopt(const std::shared_ptr<SharedMemory>& own) {
  add(own, open_others(team_, [&] { return own->address(); }));
}

void Windows::add(const std::shared_ptr<SharedMemory>& own, std::vector<SharedMemory> others) {
  own_[own->data()] = {static_cast<int32_t>(windows_.size()), own->bytes()};
  windows_.push_back({own, std::move(others)});
}

SharedPlace Windows::place_of(const void* data) const {
  const auto* byte = static_cast<const char*>(data);
  auto next = own_.upper_bound(byte);
  if (next == own_.begin()) return {};
  const auto& [begin, window] = *--next;
  const int64_t offset = byte - begin;
  if (offset >= static_cast<int64_t>(window.second)) return {};
  return {window.first, offset};
}

}  // namespace zt::comm
