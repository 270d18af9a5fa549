#include "host_streams.h"

#include <atomic>
#include <thread>

namespace zt::test::stand_in {

namespace {

struct Event {
  std::shared_ptr<std::atomic<bool>> is_over = std::make_shared<std::atomic<bool>>(false);
};

// Stream 0 is the calling thread; stream i + 1 is worker i.
std::mutex all_mutex;
std::vector<Worker*> all_workers;
std::vector<c10::StreamId> free_streams;
thread_local c10::StreamId now = 0;
thread_local Worker* current_worker = nullptr;

c10::Stream stream_of(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, at::kCPU, id);
}

Worker* worker_of(const c10::Stream& stream) {
  if (stream.id() == 0) return nullptr;
  const std::lock_guard lock(all_mutex);
  return all_workers[static_cast<size_t>(stream.id() - 1)];
}

void wait_for(const std::atomic<bool>& is_over) {
  is_over.wait(false);
}

void set(std::atomic<bool>& is_over) {
  is_over.store(true);
  is_over.notify_all();
}

}  // namespace

Worker::Worker() {
  std::thread([this] { run(); }).detach();
}

void Worker::add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  if (current_worker == this) drain();
}

void Worker::keep(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(tensor);
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

c10::Stream HostStreams::current() const {
  return stream_of(now);
}

c10::Stream HostStreams::exchange(const c10::Stream& stream) const {
  current_worker = worker_of(stream);
  if (current_worker) current_worker->drain();
  return stream_of(std::exchange(now, stream.id()));
}

c10::Stream HostStreams::take_from_pool() const {
  const std::lock_guard lock(all_mutex);
  if (!free_streams.empty()) {
    const c10::StreamId id = free_streams.back();
    free_streams.pop_back();
    return stream_of(id);
  }
  all_workers.push_back(new Worker);
  return stream_of(static_cast<c10::StreamId>(all_workers.size()));
}

void HostStreams::give_back(const c10::Stream& stream) const {
  const std::lock_guard lock(all_mutex);
  free_streams.push_back(stream.id());
}

cudaStream_t HostStreams::native(const c10::Stream& stream) const {
  return reinterpret_cast<cudaStream_t>(worker_of(stream));
}

void* HostStreams::record(const c10::Stream& stream) const {
  auto* event = new Event;
  if (Worker* worker = worker_of(stream)) worker->add_last_use([is_over = event->is_over] { set(*is_over); });
  else set(*event->is_over);
  return event;
}

void HostStreams::block(void* event, const c10::Stream& stream) const {
  const auto is_over = static_cast<Event*>(event)->is_over;
  if (Worker* worker = worker_of(stream)) worker->add([is_over] { wait_for(*is_over); });
  else wait_for(*is_over);
}

bool HostStreams::query(void* event) const {
  return static_cast<Event*>(event)->is_over->load();
}

void HostStreams::destroy(void* event) const noexcept {
  delete static_cast<Event*>(event);
}

void HostStreams::keep_for(const c10::Stream& stream, const at::Tensor& tensor) const {
  if (Worker* worker = worker_of(stream)) worker->keep(tensor);
}

void HostStreams::synchronize() const {
  std::vector<Worker*> workers;
  {
    const std::lock_guard lock(all_mutex);
    workers = all_workers;
  }
  for (Worker* worker : workers) worker->drain();
}

}  // namespace zt::test::stand_in

void zt_nccl_streams(std::shared_ptr<const zt::comm::StreamApi>* streams) {
  *streams = std::make_shared<zt::test::stand_in::HostStreams>();
}
