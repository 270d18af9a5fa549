#include "slow_backend.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "backend/checked.h"
#include "mesh/make_backend.h"

namespace zt {

namespace {

using Clock = std::chrono::steady_clock;

// Complete at a point in time.
class Deadline final : public Work::State {
 public:
  explicit Deadline(Clock::time_point end) : end_(end) {}
  bool done() override { return Clock::now() >= end_; }
  void wait() override {
    constexpr std::chrono::microseconds kLate(200);  // sleep_until wakes up late
    std::this_thread::sleep_until(end_ - kLate);
    while (Clock::now() < end_) std::this_thread::yield();
  }
  void synchronize() override { wait(); }

 private:
  Clock::time_point end_;
};

class SlowBackend final : public comm::Backend {
 public:
  SlowBackend(std::unique_ptr<comm::Backend> inner, std::shared_ptr<Network> network)
      : inner_(std::move(inner)), network_(std::move(network)) {}

  const comm::Group& group() const override { return inner_->group(); }
  const std::string& name() const override { return inner_->name(); }
  std::optional<at::Device> device() const override { return inner_->device(); }

  Work submit(comm::Operation operation, Async async) override {
    if (operation.kind != comm::CallKind::all_to_all && !network_->carries_all)
      return inner_->submit(std::move(operation), async);
    const double bytes = sent_bytes(operation), rate = network_->bytes_per_second;
    const double seconds = rate > 0 ? network_->seconds + bytes / rate : 0;
    network_->bytes = network_->bytes + bytes;
    inner_->submit(std::move(operation), Async::no).wait();
    network_->spent = network_->spent + seconds;
    free_at_ =
        std::max(free_at_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const Work work(std::make_shared<Deadline>(free_at_));
    if (async == Async::yes) return work;
    work.wait();
    return Work();
  }

  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype, const std::vector<Backend*>& also) override {
    return inner_->allocate(shape, dtype, also);
  }
  bool shares_memory() const override { return inner_->shares_memory(); }
  at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) override {
    return inner_->allocate_shared(shape, dtype);
  }
  std::unique_ptr<Backend> duplicate(const std::string& name) override {
    return make_slow_backend(inner_->duplicate(name), network_);
  }
  std::shared_ptr<Channel> channel(const comm::ChannelPlan& plan, Communicator& whole,
                                   std::shared_ptr<comm::BlackBox> box) override {
    return inner_->channel(plan, whole, std::move(box));
  }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_->set_timeout(timeout); }
  void set_check(comm::CheckMode mode) override { inner_->set_check(mode); }
  void drain() override { inner_->drain(); }
  void record_in(std::shared_ptr<comm::Ring> ring) override { inner_->record_in(std::move(ring)); }

 private:
  // Returns what this rank sends to others. Reductions and gathers pass parts around a ring.
  double sent_bytes(const comm::Operation& operation) const {
    const auto size = static_cast<double>(group().ranks.size());
    const auto bytes_of = [](const comm::Tensors& tensors) {
      double bytes = 0;
      for (const at::Tensor& tensor : tensors) bytes += tensor.defined() ? static_cast<double>(tensor.nbytes()) : 0;
      return bytes;
    };
    switch (operation.kind) {
      case comm::CallKind::all_to_all: {
        int64_t elements = std::accumulate(operation.in_splits.begin(), operation.in_splits.end(), int64_t{0});
        elements -= operation.in_splits[static_cast<size_t>(group().rank)];
        return static_cast<double>(elements) * static_cast<double>(operation.in[0].element_size());
      }
      case comm::CallKind::all_reduce:
        return 2 * bytes_of(operation.in) * (size - 1) / size;
      case comm::CallKind::reduce_scatter:
        return bytes_of(operation.in) * (size - 1) / size;
      case comm::CallKind::all_gather:
        return bytes_of(operation.out) * (size - 1) / size;
      default:
        return bytes_of(operation.in);
    }
  }

  const std::unique_ptr<comm::Backend> inner_;
  const std::shared_ptr<Network> network_;
  Clock::time_point free_at_ = {};
};

}  // namespace

std::unique_ptr<comm::Backend> make_slow_backend(std::unique_ptr<comm::Backend> inner, std::shared_ptr<Network> network) {
  return std::make_unique<SlowBackend>(std::move(inner), std::move(network));
}

std::shared_ptr<Mesh> make_slow_mesh(const World& world, const MeshShape& shape, const std::shared_ptr<Network>& network) {
  const auto factory = [world, network](const std::vector<int>& ranks, const std::string& name) {
    const auto place = static_cast<int>(std::ranges::find(ranks, world.rank) - ranks.begin());
    auto backend = make_slow_backend(comm::make_backend(world, "local", {name, place, ranks}, {}), network);
    const auto comm = std::make_shared<comm::CheckedCommunicator>(std::move(backend));
    return Communicators{comm, comm};
  };
  return Mesh::make(shape, world.rank, factory);
}

}  // namespace zt
