#include "transfer_queue.h"

#include "zt/base/error.h"
#include "zt/io/io_errors.h"

namespace zt::io {

TransferQueue::TransferQueue(const TransferContext& context, File& file, int depth)
    : context_(context), file_(file), lanes_(static_cast<size_t>(depth)) {
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

void TransferQueue::start(const FileOperation& operation, int64_t needed, const std::string* path) {
  Lane& lane = lanes_[operation.tag];
  lane = {operation, needed, path ? path : &context_.path};
  submit(lane);
}

void TransferQueue::submit(const Lane& lane) {
  file_.submit(lane.operation);
  ++under_way_;
}

TransferQueue::End TransferQueue::wait_one() {
  while (true) {
    if (auto end = take(file_.wait())) return *end;
  }
}

std::optional<TransferQueue::End> TransferQueue::poll_one() {
  while (const auto done = file_.poll()) {
    if (auto end = take(*done)) return end;
  }
  return std::nullopt;
}

int TransferQueue::finish_one() {
  const End end = wait_one();
  if (end.fault) std::rethrow_exception(end.fault);
  return end.lane;
}

// Handles a completion. Returns the end of its operation; nullopt if the rest was submitted.
std::optional<TransferQueue::End> TransferQueue::take(const Completion& done) {
  --under_way_;
  Lane& lane = lanes_[done.tag];
  End end{done.tag};
  try {
    if (!advance(lane, done.result)) {
      submit(lane);
      return std::nullopt;
    }
  } catch (const Fault&) {
    end.fault = std::current_exception();
  }
  free_.push_back(done.tag);
  return end;
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
  const bool is_read = lane.operation.direction == IoDirection::read;
  const bool is_last = ++lane.retries > kMaxRetries;
  if (result < 0 && (!is_transient(result) || is_last)) {
    io_fault(context_.files, is_read ? "read" : "write", *lane.path, result, context_.bytes);
  }
  if (is_read && (result == 0 || is_last)) {
    fault(
        "'{}' was truncated while it was in use: bytes {} to {} are needed, but it now ends before them. Restore it and start "
        "again. To change a file that is in use, write a new file and rename it",
        *lane.path, lane.operation.offset, lane.operation.offset + lane.needed);
  }
  if (is_last) io_fault(context_.files, "write", *lane.path, -EAGAIN, context_.bytes);
  pause_before_retry(lane.retries);
}

void transfer(const TransferContext& context, File& file, const FileOperation& operation) {
  if (operation.bytes == 0) return;
  TransferQueue queue(context, file, 1);
  FileOperation mine = operation;
  mine.tag = queue.take_lane();
  queue.start(mine, operation.bytes);
  queue.finish_one();
}

bool reserve(const TransferContext& context, File& file, int64_t bytes) {
  const int64_t result = retry([&] { return file.reserve(bytes); });
  if (result == -EOPNOTSUPP || result == -ENOSYS) return false;
  if (result < 0) {
    file.truncate(0);  // what was reserved is free again, for others and for the message
    io_fault(context.files, "reserve space for", context.path, result, context.bytes);
  }
  return true;
}

void sync(const TransferContext& context, File& file) {
  const int64_t result = retry([&] { return file.sync(); });
  if (result < 0) io_fault(context.files, "write", context.path, result, context.bytes);
}

}  // namespace zt::io
