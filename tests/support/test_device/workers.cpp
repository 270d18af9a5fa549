#include "workers.h"

#include <thread>
#include <utility>

namespace zt::test {

namespace {

// Stream i + 1 is worker i.
std::mutex all_mutex;
std::vector<Worker*> all_workers;
std::vector<c10::StreamId> free_streams;
thread_local c10::StreamId current_id = 0;
thread_local Worker* current_worker = nullptr;

}  // namespace

Worker::Worker() {
  std::thread([this] { run(); }).detach();
}

void Worker::add(std::function<void()> task) {
  post(std::move(task));
  if (current_worker == this) drain();
}

void Worker::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Worker::keep(std::shared_ptr<void> object) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(object));
}

void Worker::add_last_use(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.emplace_back([task = std::move(task), kept = std::exchange(kept_, {})] { task(); });
  changed_.notify_all();
}

void Worker::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !is_busy_; });
}

void Worker::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      is_busy_ = false;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
      is_busy_ = true;
    }
    task();
  }
}

HostEvent::HostEvent(Worker* worker) {
  const auto set = [is_over = is_over_] {
    is_over->store(true);
    is_over->notify_all();
  };
  if (worker) worker->add_last_use(set);
  else set();
}

void HostEvent::hold(Worker* worker) const {
  if (!worker) return wait();
  worker->add([is_over = is_over_] { is_over->wait(false); });
}

c10::StreamId current_stream() {
  return current_id;
}

c10::StreamId exchange_stream(c10::StreamId stream) {
  current_worker = worker_of(stream);
  if (current_worker) current_worker->drain();
  return std::exchange(current_id, stream);
}

c10::StreamId take_stream() {
  const std::lock_guard lock(all_mutex);
  if (!free_streams.empty()) {
    const c10::StreamId id = free_streams.back();
    free_streams.pop_back();
    return id;
  }
  all_workers.push_back(new Worker);
  return static_cast<c10::StreamId>(all_workers.size());
}

void give_back_stream(c10::StreamId stream) {
  const std::lock_guard lock(all_mutex);
  free_streams.push_back(stream);
}

Worker* worker_of(c10::StreamId stream) {
  if (stream == 0) return nullptr;
  const std::lock_guard lock(all_mutex);
  return all_workers[static_cast<size_t>(stream - 1)];
}

void drain_streams() {
  std::vector<Worker*> workers;
  {
    const std::lock_guard lock(all_mutex);
    workers = all_workers;
  }
  for (Worker* worker : workers) worker->drain();
}

}  // namespace zt::test
