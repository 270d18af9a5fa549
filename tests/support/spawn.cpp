#include "support/spawn.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "zt/base/error.h"

namespace zt::test {

namespace {

// Keeps the first exception that is not a consequence (zt::Aborted), or the first Aborted if there is no other.
class FirstFailure {
 public:
  void add(std::exception_ptr failure, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    if (failure_ && (is_consequence || !is_consequence_)) return;
    failure_ = std::move(failure);
    is_consequence_ = is_consequence;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool is_consequence_ = false;
};

void run_rank(const World& world, const std::function<void(const World&)>& body, FirstFailure& failure) {
  try {
    body(world);
    return;
  } catch (const Aborted&) {
    failure.add(std::current_exception(), true);
  } catch (...) {
    failure.add(std::current_exception(), false);
  }
  world.threads->abort();
}

}  // namespace

void spawn(int ranks, const std::function<void(const World&)>& body) {
  const auto group = std::make_shared<ThreadGroup>(ranks);
  FirstFailure failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    World world{.rank = rank, .size = ranks, .launch = Launch::threads, .threads = group};
    threads.emplace_back([world = std::move(world), &body, &failure] { run_rank(world, body, failure); });
  }
  for (auto& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace zt::test
