#include "transfer_queue.h"

#include "zt/base/error.h"
#include "zt/io/io_errors.h"

namespace zt::io {

TransferQueue::TransferQueue(const TransferContext& context, File& file, Direction direction, int depth)
    : context_(context), file_(file), direction_(direction), slots_(static_cast<size_t>(depth)) {
  for (int slot = depth - 1; slot >= 0; --slot) free_.push_back(slot);
}

TransferQueue::~TransferQueue() {
  try {
    for (; under_way_ > 0; --under_way_) file_.wait();
  } catch (...) {  // only the file systems of tests throw, to simulate the death of the process: nothing is under way any more
  }
}

int TransferQueue::take_slot() {
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void TransferQueue::start(int slot, int64_t offset, std::byte* memory, int64_t bytes, int64_t needed) {
  slots_[slot] = {{direction_, offset, memory, bytes, slot}, needed};
  submit(slots_[slot]);
}

void TransferQueue::submit(const Slot& slot) {
  file_.submit(slot.operation);
  ++under_way_;
}

int TransferQueue::finish_one() {
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

// Returns whether the operation is complete. Otherwise the slot holds the rest of it.
bool TransferQueue::advance(Slot& slot, int64_t result) {
  if (result >= slot.needed) return true;
  const int64_t moved = result < 0 ? 0 : result / file_.alignment() * file_.alignment();
  if (moved == 0) {
    count_retry(slot, result);
    return false;
  }
  slot.operation.offset += moved;
  slot.operation.memory += moved;
  slot.operation.bytes -= moved;
  slot.needed -= moved;
  slot.retries = 0;
  return false;
}

// Called when an operation has made no progress: throws if a retry cannot help, else pauses before it.
void TransferQueue::count_retry(Slot& slot, int64_t result) {
  const bool is_read = direction_ == Direction::read;
  const bool is_last = ++slot.retries > kMaxRetries;
  if (result < 0 && (!is_transient(result) || is_last)) {
    io_fault(context_.files, is_read ? "read" : "write", context_.path, result, context_.bytes);
  }
  if (is_read && (result == 0 || is_last)) {
    fault(
        "'{}' was cut while it was in use: bytes {} to {} are needed, and now it ends before them. Restore it and start again; "
        "write such files under a new name and rename them",
        context_.path, slot.operation.offset, slot.operation.offset + slot.needed);
  }
  if (is_last) io_fault(context_.files, "write", context_.path, -EAGAIN, context_.bytes);
  pause_before_retry(slot.retries);
}

void transfer(const TransferContext& context, File& file, const Operation& operation) {
  if (operation.bytes == 0) return;
  TransferQueue queue(context, file, operation.direction, 1);
  queue.start(queue.take_slot(), operation.offset, operation.memory, operation.bytes, operation.bytes);
  queue.finish_one();
}

void sync(const TransferContext& context, File& file) {
  const int64_t result = retry([&] { return file.sync(); });
  if (result < 0) io_fault(context.files, "write", context.path, result, context.bytes);
}

}  // namespace zt::io
