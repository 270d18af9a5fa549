#include "shm/slot_ring.h"

#include <algorithm>

namespace zt::comm {

namespace {

constexpr size_t kShortestSlot = size_t{64} << 10;

}  // namespace

size_t SlotRing::bytes_for(int depth) {
  return sizeof(RingBoard) + sizeof(SlotNotice) * static_cast<size_t>(depth);
}

SlotRing::SlotRing(SharedMemory& memory, size_t offset, int depth)
    : memory_(memory),
      board_(reinterpret_cast<RingBoard*>(memory.data() + offset)),
      notices_(reinterpret_cast<SlotNotice*>(board_ + 1)),
      slots_(static_cast<size_t>(depth)) {}

char* SlotRing::writable(size_t bytes) {
  SharedPart& slot = slots_[slot_];
  if (slot.bytes() < bytes) {
    // Half as much again, so that messages which become longer and longer seldom need new memory.
    const size_t wanted = std::max({bytes, slot.bytes() + slot.bytes() / 2, kShortestSlot});
    SharedPart longer(memory_, memory_.extend(wanted), wanted);
    slot.discard();
    slot = std::move(longer);
    notice().offset = static_cast<int64_t>(slot.offset());
    notice().bytes = static_cast<int64_t>(slot.bytes());
  }
  return slot.data();
}

const char* SlotRing::readable() {
  SharedPart& slot = slots_[slot_];
  const SlotNotice& now = notice();
  if (now.bytes > 0 && (slot.bytes() == 0 || static_cast<int64_t>(slot.offset()) != now.offset))
    slot = SharedPart(memory_, static_cast<size_t>(now.offset), static_cast<size_t>(now.bytes));
  return slot.data();
}

void SlotRing::pass(Signal& mine) {
  slot_ = (slot_ + 1) % slots_.size();
  mine.raise(++count_);
}

}  // namespace zt::comm
