// Streams without a GPU: each stream of the pool is a thread that does its work in order, and stream 0 is the calling thread,
// which does its work at once.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace zt::test {

// The thread of a stream. Lives until the process ends.
class Worker {
 public:
  Worker();
  // Waits for the task, too, if the worker's stream is the current one: ATen's kernels, which may follow, run at once.
  void add(std::function<void()> task);
  // The same without the wait.
  void post(std::function<void()> task);
  // Keeps the object until the next task that `add_last_use` adds is done.
  void keep(std::shared_ptr<void> object);
  void add_last_use(std::function<void()> task);
  // Waits until all tasks are done.
  void drain();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::shared_ptr<void>> kept_;
  bool is_busy_ = false;
};

// Is over when the stream on which it was recorded has done what it had to do then.
class HostEvent {
 public:
  explicit HostEvent(Worker* worker);
  void hold(Worker* worker) const;  // until it is over
  void wait() const { is_over_->wait(false); }
  bool is_over() const { return is_over_->load(); }

 private:
  std::shared_ptr<std::atomic<bool>> is_over_ = std::make_shared<std::atomic<bool>>(false);
};

// The calling thread's current stream. `exchange` returns the previous one, after the work of the new one.
c10::StreamId current_stream();
c10::StreamId exchange_stream(c10::StreamId stream);
c10::StreamId take_stream();
void give_back_stream(c10::StreamId stream);
// Returns the thread of a stream; null for stream 0.
Worker* worker_of(c10::StreamId stream);
// Waits for the work of all streams.
void drain_streams();

}  // namespace zt::test
