#include "transfer_queue.h"

#include "zt/base/error.h"
#include "zt/io/io_errors.h"

namespace zt::io {

TransferQueue::TransferQueue(const TransferContext& context, File& file, IoDirection direction, int depth)
    : context_(context), file_(file), direction_(direction), lanes_(static_cast<size_t>(depth)) {
  for (int lane = depth - 1; lane >= 0; --lane) free_.push_back(lane);
}

TransferQueue::~TransferQueue() {
  try {
    for (; under_way_ > 0; --under_way_) file_.wait();
  } catch (...) {  // only the file systems of tests throw, to simulate the death of the process; nothing is under way then
  }
}

int TransferQueue::take_lane() {
  const int lane = free_.back();
  free_.pop_back();
  return lane;
}

void TransferQueue::start(int lane, int64_t offset, std::byte* memory, int64_t bytes, int64_t needed) {
  lanes_[lane] = {{direction_, offset, memory, bytes, lane}, needed};
  submit(lanes_[lane]);
}

void TransferQueue::submit(const Lane& lane) {
  file_.submit(lane.operation);
  ++under_way_;
}

int TransferQueue::finish_one() {
  while (true) {
    const Completion done = file_.wait();
    --under_way_;
    Lane& lane = lanes_[done.tag];
    if (advance(lane, done.result)) {
      free_.push_back(done.tag);
      return done.tag;
    }
    submit(lane);
  }
}

// Returns whether the operation is complete after `result`. If not, shortens the lane's operation to the part that is left.
bool TransferQueue::advance(Lane& lane, int64_t result) {
  if (result >= lane.needed) return true;
  const int64_t moved = result < 0 ? 0 : result / file_.alignment() * file_.alignment();
  if (moved == 0) count_retry(lane, result);
  else lane.retries = 0;
  lane.operation.offset += moved;
  lane.operation.memory += moved;
  lane.operation.bytes -= moved;
  lane.needed -= moved;
  return false;
}

// Handles a result without progress. Throws Fault if a retry cannot help or was the last one; else pauses before the next one.
void TransferQueue::count_retry(Lane& lane, int64_t result) {
  const bool is_read = direction_ == IoDirection::read;
  const bool is_last = ++lane.retries > kMaxRetries;
  if (result < 0 && (!is_transient(result) || is_last)) {
    io_fault(context_.files, is_read ? "read" : "write", context_.path, result, context_.bytes);
  }
  if (is_read && (result == 0 || is_last)) {
    fault(
        "'{}' was truncated while it was in use: bytes {} to {} are needed, but it now ends before them. Restore it and start "
        "again. To change a file that is in use, write a new file and rename it",
        context_.path, lane.operation.offset, lane.operation.offset + lane.needed);
  }
  if (is_last) io_fault(context_.files, "write", context_.path, -EAGAIN, context_.bytes);
  pause_before_retry(lane.retries);
}

void transfer(const TransferContext& context, File& file, const FileOperation& operation) {
  if (operation.bytes == 0) return;
  TransferQueue queue(context, file, operation.direction, 1);
  queue.start(queue.take_lane(), operation.offset, operation.memory, operation.bytes, operation.bytes);
  queue.finish_one();
}

void sync(const TransferContext& context, File& file) {
  const int64_t result = retry([&] { return file.sync(); });
  if (result < 0) io_fault(context.files, "write", context.path, result, context.bytes);
}

}  // namespace zt::io
