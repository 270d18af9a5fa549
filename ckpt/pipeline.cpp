#include "pipeline.h"

#include "calls.h"
#include "zt/error.h"

namespace zt::ckpt {

Pipeline::Pipeline(const Subject& subject, File& file, Direction direction, int depth)
    : subject_(subject), file_(file), direction_(direction), slots_(static_cast<size_t>(depth)) {
  for (int slot = depth - 1; slot >= 0; --slot) free_.push_back(slot);
}

Pipeline::~Pipeline() {
  try {
    for (; under_way_ > 0; --under_way_) file_.wait();
  } catch (...) {  // thrown by tests' file systems only, when the process counts as dead: nothing is under way any more
  }
}

int Pipeline::take_slot() {
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void Pipeline::start(int slot, int64_t offset, std::byte* memory, int64_t bytes, int64_t needed) {
  slots_[slot] = {{direction_, offset, memory, bytes, slot}, needed};
  submit(slots_[slot]);
}

void Pipeline::submit(const Slot& slot) {
  file_.submit(slot.operation);
  ++under_way_;
}

int Pipeline::finish_one() {
  while (true) {
    const Completion done = file_.wait();
    --under_way_;
    Slot& slot = slots_[done.tag];
    if (advance(slot, done.result)) {
      free_.push_back(done.tag);
      return done.tag;
    }
    submit(slot);
  }
}

// True when the operation is done; otherwise it is what is left of it.
bool Pipeline::advance(Slot& slot, int64_t result) {
  if (result >= slot.needed) return true;
  const int64_t moved = result < 0 ? 0 : result / file_.alignment() * file_.alignment();
  if (moved == 0) {
    note_no_progress(slot, result);
    return false;
  }
  slot.operation.offset += moved;
  slot.operation.memory += moved;
  slot.operation.bytes -= moved;
  slot.needed -= moved;
  slot.repeats = 0;
  return false;
}

void Pipeline::note_no_progress(Slot& slot, int64_t result) {
  const bool is_read = direction_ == Direction::read;
  const bool is_over = ++slot.repeats > kPatience;
  if (result < 0 && (!is_passing(result) || is_over)) {
    io_fault(subject_.files, is_read ? "read" : "write", subject_.path, result, subject_.bytes);
  }
  if (is_read && (result == 0 || is_over)) {
    fault("{} is cut off: bytes {} to {} are needed, and it ends before. Restore it from a copy or use another checkpoint",
          subject_.path, slot.operation.offset, slot.operation.offset + slot.needed);
  }
  if (is_over) io_fault(subject_.files, "write", subject_.path, -EAGAIN, subject_.bytes);
  pause_before_repeat(slot.repeats);
}

}  // namespace zt::ckpt
