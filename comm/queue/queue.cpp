#include "queue.h"

#include <pthread.h>
#include <sys/prctl.h>

namespace zt::comm {

namespace {

// How long `close` waits for unfinished tasks. Below the 5 s within which a failed run must end.
constexpr std::chrono::seconds kQueueGrace(2);

class QueuedWork : public Work::State {
 public:
  explicit QueuedWork(std::shared_future<void> result) : result_(std::move(result)) {}
  bool done() override { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  void wait() override { result_.get(); }
  void synchronize() override { result_.get(); }

 private:
  std::shared_future<void> result_;
};

}  // namespace

bool Queue::is_idle() {
  if (!thread_.joinable()) return true;
  const std::lock_guard lock(mutex_);
  return entries_.empty() && !busy_;
}

Work Queue::submit(Task task) {
  std::unique_lock lock(mutex_);
  entries_.push_back({std::move(task), {}});
  auto work = std::make_shared<QueuedWork>(entries_.back().promise.get_future().share());
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  lock.unlock();
  changed_.notify_all();
  return Work(std::move(work));
}

// Returns false, with the reason in failure_, if this task or an earlier one failed.
bool Queue::run(const Task& task, WaitPolicy::Style style) {
  if (failure_) return false;
  try {
    task(style);
    return true;
  } catch (...) {
    failure_ = std::current_exception();
    return false;
  }
}

void Queue::serve() {
  pthread_setname_np(pthread_self(), "zt-comm");
  // By default Linux lengthens every sleep by up to 50 us, more than the sleep itself.
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !entries_.empty(); });
    if (entries_.empty()) return;
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    busy_ = true;
    lock.unlock();
    const bool ran = run(entry.task, WaitPolicy::Style::background);
    entry.task = nullptr;  // releases the tensors before the waiter is notified
    lock.lock();
    busy_ = false;
    if (ran) entry.promise.set_value();
    else entry.promise.set_exception(failure_);
    changed_.notify_all();
  }
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return entries_.empty() && !busy_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Queue::close() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
  if (!changed_.wait_for(lock, kQueueGrace, [&] { return entries_.empty() && !busy_; })) cancelled_ = true;
  lock.unlock();
  thread_.join();
}

}  // namespace zt::comm
