// The buffers of a channel in shared memory: a ring of slots, each with room for one message.
//
// The sender fills slot after slot, and the receiver empties them in the same order. A slot that is too short for a message gets
// longer memory, which the sender appends to the file of the ring and the receiver maps when it comes to the slot. So a send
// never waits for the receiver to agree.
//
// Threads: one per end. Errors: Fault if there is no memory.
#pragma once

#include <cstdint>
#include <vector>

#include "queue/signal.h"
#include "shm/shared_memory.h"

namespace zt::comm {

// What the sender says about a slot. It writes this while the slot is free.
struct alignas(64) SlotNotice {
  int64_t offset = 0, bytes = 0;  // of the slot's memory in the file; 0 bytes: it has none yet
  int64_t shape_words = 0;        // length of the message's shapes, at the start of the slot; -1: as in the last message
};

// At the start of the ring's memory, followed by one SlotNotice per slot.
struct RingBoard {
  alignas(64) Signal sent;   // messages that were put into slots; the sender writes it
  alignas(64) Signal taken;  // messages that were taken out of slots; the receiver writes it
};

class SlotRing {
 public:
  static size_t bytes_for(int depth);

  // memory: the ring begins at `offset`; both ends map it, and it is zeroed. It must outlive the object.
  SlotRing(SharedMemory& memory, size_t offset, int depth);

  Signal& sent() { return board_->sent; }
  Signal& taken() { return board_->taken; }
  // The value of sent() at which the next message is there, and of taken() at which the next slot is free.
  uint32_t next_message() const { return count_ + 1; }
  uint32_t next_vacancy() const { return count_ + 1 - static_cast<uint32_t>(slots_.size()); }

  SlotNotice& notice() { return notices_[slot_]; }
  // For the sender: returns the memory of the next slot, with at least `bytes`. The slot must be free.
  char* writable(size_t bytes);
  // For the receiver: returns the memory of the next message, which must be there.
  const char* readable();
  // Goes on to the next slot, and lets the other end have this one.
  void pass(Signal& mine);

 private:
  SharedMemory& memory_;
  RingBoard* const board_;
  SlotNotice* const notices_;
  std::vector<SharedPart> slots_;
  size_t slot_ = 0;     // the next one
  uint32_t count_ = 0;  // messages so far, modulo 2^32
};

}  // namespace zt::comm
