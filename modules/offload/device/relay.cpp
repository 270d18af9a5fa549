#include "device/relay.h"

#include <chrono>
#include <future>

namespace zt::offload {

namespace {

class Relayed final : public Work::State {
 public:
  explicit Relayed(std::shared_future<Work> second) : second_(std::move(second)) {}
  bool done() override {
    if (second_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    try {
      return second_.get().done();
    } catch (...) {
      return true;
    }
  }
  void wait() override { second_.get().wait(); }
  void synchronize() override { second_.get().synchronize(); }

 private:
  const std::shared_future<Work> second_;
};

// Swap files are locked while one thread waits for a transfer, so this looks from time to time instead.
void await_end(const Work& work) {
  constexpr auto kPause = std::chrono::microseconds(50);
  while (!work.done()) std::this_thread::sleep_for(kPause);
  work.synchronize();
}

}  // namespace

Relay::Relay() : thread_([this] { run(); }) {}

Relay::~Relay() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Work Relay::add(Work first, std::function<Work()> start, std::function<void(const Work& second)> finish) {
  auto promise = std::make_shared<std::promise<Work>>();
  Work both(std::make_shared<Relayed>(promise->get_future().share()));
  auto job = [promise, first = std::move(first), start = std::move(start), finish = std::move(finish)] {
    try {
      await_end(first);
      const Work second = start();
      promise->set_value(second);
      if (finish) finish(second);
    } catch (...) {
      try {
        promise->set_exception(std::current_exception());
      } catch (const std::future_error&) {  // `finish` has failed: whoever waits for the second part gets its error from there
      }
    }
  };
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return both;
}

void Relay::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace zt::offload
