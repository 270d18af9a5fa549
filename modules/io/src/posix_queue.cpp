#include "posix_queue.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace zt::io {

namespace {

Completion perform(const Stripes& stripes, const FileOperation& operation) {
  const auto [descriptor, offset] = stripes.at(operation.offset);
  const auto bytes = static_cast<size_t>(operation.bytes);
  const ssize_t moved = operation.direction == IoDirection::read ? pread(descriptor, operation.memory, bytes, offset)
                                                                 : pwrite(descriptor, operation.memory, bytes, offset);
  return {operation.tag, moved < 0 ? -errno : moved};
}

// Performs each operation within submit(), by pread or pwrite.
class PlainQueue : public PosixQueue {
 public:
  explicit PlainQueue(Stripes stripes) : stripes_(std::move(stripes)) {}

  void submit(const FileOperation& operation) override { done_.push_back(perform(stripes_, operation)); }

  Completion wait() override {
    const Completion first = done_.front();
    done_.pop_front();
    return first;
  }

  std::optional<Completion> poll() override {
    if (done_.empty()) return std::nullopt;
    return wait();
  }

 private:
  const Stripes stripes_;
  std::deque<Completion> done_;
};

// Performs operations on a thread. Invariant: `mutex_` guards the two lists and `is_ending_`.
class ThreadQueue : public PosixQueue {
 public:
  explicit ThreadQueue(Stripes stripes) : stripes_(std::move(stripes)), thread_([this] { work(); }) {}
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void submit(const FileOperation& operation) override {
    {
      const std::lock_guard lock(mutex_);
      wanted_.push_back(operation);
    }
    changed_.notify_all();
  }

  Completion wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !done_.empty(); });
    return take();
  }

  std::optional<Completion> poll() override {
    const std::lock_guard lock(mutex_);
    if (done_.empty()) return std::nullopt;
    return take();
  }

 private:
  Completion take() {
    const Completion first = done_.front();
    done_.pop_front();
    return first;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_ending_ || !wanted_.empty(); });
      if (wanted_.empty()) return;
      const FileOperation next = wanted_.front();
      wanted_.pop_front();
      lock.unlock();
      const Completion done = perform(stripes_, next);
      lock.lock();
      done_.push_back(done);
      changed_.notify_all();
    }
  }

  const Stripes stripes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FileOperation> wanted_;
  std::deque<Completion> done_;
  bool is_ending_ = false;
  std::thread thread_;  // declared last: it uses all of the above
};

}  // namespace

Stripes::Place Stripes::at(int64_t offset) const {
  const auto files = static_cast<int64_t>(descriptors.size());
  if (files == 1) return {descriptors.front(), offset};
  const int64_t number = offset / block;
  return {descriptors[static_cast<size_t>(number % files)], number / files * block + offset % block};
}

int PosixQueue::pin(std::span<std::byte> /*memory*/) {
  return 0;
}

std::unique_ptr<PosixQueue> make_plain_queue(const Stripes& stripes) {
  return std::make_unique<PlainQueue>(stripes);
}

std::unique_ptr<PosixQueue> make_thread_queue(const Stripes& stripes) {
  return std::make_unique<ThreadQueue>(stripes);
}

}  // namespace zt::io
