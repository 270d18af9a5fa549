#include "local/local_transport.h"

#include <ATen/ops/from_blob.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "queue/signal.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

// A send that waits for its receiver. The receiver claims it before copying. The sender withdraws it before its memory is freed.
struct Post {
  enum State : int { offered, claimed, copied, withdrawn };
  Signal& sender;  // of the rank that waits for the receiver
  const void* data;
  size_t bytes;
  std::atomic<int> state{offered};
};

// The messages from one rank to another.
struct Lane {
  std::mutex mutex;
  std::deque<std::shared_ptr<Post>> posts;
};

struct HubTensor {
  at::Tensor tensor;
  int asked = 0;  // ranks that have asked for it
};

// The state that the ranks of one communicator share.
struct Hub {
  explicit Hub(int size)
      : size(size), signals(static_cast<size_t>(size)), lanes(static_cast<size_t>(size) * static_cast<size_t>(size)) {}
  Signal& signal(int rank) { return signals[static_cast<size_t>(rank)]; }
  Lane& lane(int from, int to) { return lanes[static_cast<size_t>(from) * static_cast<size_t>(size) + static_cast<size_t>(to)]; }
  // Returns shared tensor `number`. The first rank that asks creates it; the last one removes it from the hub.
  at::Tensor shared_tensor(size_t number, at::IntArrayRef shape, at::ScalarType dtype) {
    const std::lock_guard lock(mutex);
    HubTensor& shared = tensors[number];
    if (shared.asked++ == 0) shared.tensor = large_zeros(shape, dtype);
    at::Tensor tensor = shared.tensor;
    if (shared.asked == size) tensors.erase(number);
    return tensor;
  }

  const int size;
  std::vector<Signal> signals;  // by rank: what happened to messages from and to it
  std::vector<Lane> lanes;
  std::mutex mutex;
  std::map<size_t, HubTensor> tensors;  // by number, while not all ranks have asked for it
};

class LocalSend : public Transport::Message {
 public:
  explicit LocalSend(std::shared_ptr<Post> post) : post_(std::move(post)) {}
  // The memory may be freed afterwards: no copy starts any more, and a copy under way has ended.
  ~LocalSend() override {
    int expected = Post::offered;
    if (post_->state.compare_exchange_strong(expected, Post::withdrawn)) return;
    while (post_->state == Post::claimed) std::this_thread::yield();
  }
  bool done() override { return post_->state == Post::copied; }

 private:
  std::shared_ptr<Post> post_;
};

// Receives of one lane take their messages in the order of their tickets.
struct Tickets {
  uint64_t given = 0, taken = 0;
};

class LocalRecv : public Transport::Message {
 public:
  LocalRecv(Lane& lane, Tickets& tickets, void* data, size_t bytes)
      : lane_(lane), tickets_(tickets), ticket_(tickets.given++), data_(data), bytes_(bytes) {}

  bool done() override {
    if (is_done_) return true;
    if (ticket_ != tickets_.taken) return false;
    const std::shared_ptr<Post> post = front();
    if (!post) return false;
    int expected = Post::offered;
    if (!post->state.compare_exchange_strong(expected, Post::claimed))
      throw Aborted("another rank of this run has given up this call: its message says why");
    const size_t sent = post->bytes;
    if (sent == bytes_ && bytes_ > 0) std::memcpy(data_, post->data, bytes_);
    post->state = Post::copied;
    post->sender.advance();
    if (sent != bytes_) fault("{} bytes came where {} were expected: do all ranks pass the same counts and types?", sent, bytes_);
    ++tickets_.taken;
    is_done_ = true;
    return true;
  }

 private:
  std::shared_ptr<Post> front() {
    const std::lock_guard lock(lane_.mutex);
    if (lane_.posts.empty()) return nullptr;
    auto post = std::move(lane_.posts.front());
    lane_.posts.pop_front();
    return post;
  }

  Lane& lane_;
  Tickets& tickets_;
  const uint64_t ticket_;
  void* data_;
  const size_t bytes_;
  bool is_done_ = false;
};

// Counts the communicators that this rank makes over `ranks`. The n-th ones of all these ranks belong together.
int next_number(ThreadGroup& threads, int world_rank, const std::string& ranks) {
  using Numbers = std::map<std::string, int>;
  const auto numbers =
      threads.shared<Numbers>(fmt::format("comm.local.numbers.{}", world_rank), [] { return std::make_shared<Numbers>(); });
  return (*numbers)[ranks]++;
}

std::shared_ptr<Hub> join_hub(ThreadGroup* threads, const Group& group) {
  const auto make = [&] { return std::make_shared<Hub>(group.size()); };
  if (!threads) return make();
  const std::string ranks = fmt::format("{}", fmt::join(group.ranks, ","));
  const int number = next_number(*threads, group.ranks[group.rank], ranks);
  return threads->shared<Hub>(fmt::format("comm.local.{}.{}", ranks, number), make);
}

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<ThreadGroup> threads, Group group)
      : threads_(std::move(threads)),
        group_(std::move(group)),
        hub_(join_hub(threads_.get(), group_)),
        tickets_(group_.ranks.size()) {}

  const Group& group() const override { return group_; }
  const std::string& name() const override { return kName; }
  std::unique_ptr<Message> send(int peer, const void* data, size_t bytes) override {
    auto post = std::make_shared<Post>(hub_->signal(group_.rank), data, bytes);
    Lane& lane = hub_->lane(group_.rank, peer);
    {
      const std::lock_guard lock(lane.mutex);
      lane.posts.push_back(post);
    }
    hub_->signal(peer).advance();
    return std::make_unique<LocalSend>(std::move(post));
  }
  std::unique_ptr<Message> recv(int peer, void* data, size_t bytes) override {
    return std::make_unique<LocalRecv>(hub_->lane(peer, group_.rank), tickets_[static_cast<size_t>(peer)], data, bytes);
  }
  size_t longest_message() const override { return SIZE_MAX; }
  uint32_t progress() const override { return hub_->signal(group_.rank).value(); }
  bool pause(WaitPolicy& policy, uint32_t seen) override {
    Signal& mine = hub_->signal(group_.rank);
    if (!poll(mine, seen + 1, spin_for(policy.style()))) mine.sleep(seen);
    return policy.go_on();
  }
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) override { return large_zeros(shape, dtype); }
  bool shares_memory() const override { return true; }
  at::Tensor allocate_shared(at::IntArrayRef shape, at::ScalarType dtype) override {
    const at::Tensor all = hub_->shared_tensor(shared_made_++, shape, dtype);
    return at::from_blob(
        all.data_ptr(), shape, [all](void*) {}, all.options());  // one tensor object per thread: autograd writes to it
  }
  std::function<void()> abort_check() const override { return comm::abort_check(threads_); }
  std::unique_ptr<Transport> pair(const ChannelPlan& plan) override {
    return std::make_unique<LocalTransport>(threads_, plan.pair(group_));
  }
  std::unique_ptr<Transport> duplicate(const std::string& name) override {
    return std::make_unique<LocalTransport>(threads_, group_.renamed(name));
  }

 private:
  inline static const std::string kName = "local";
  std::shared_ptr<ThreadGroup> threads_;
  Group group_;
  std::shared_ptr<Hub> hub_;
  std::vector<Tickets> tickets_;  // by sender
  size_t shared_made_ = 0;        // shared tensors that this rank has asked for
};

}  // namespace

std::function<void()> abort_check(std::shared_ptr<ThreadGroup> threads) {
  return [threads = std::move(threads)] {
    if (threads && threads->aborted())
      throw Aborted("another rank of this run has failed, so this call cannot be completed: its message says why");
  };
}

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadGroup> threads, Group group) {
  return std::make_unique<LocalTransport>(std::move(threads), std::move(group));
}

}  // namespace zt::comm
