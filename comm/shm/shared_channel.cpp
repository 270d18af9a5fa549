#include "shm/shared_channel.h"

#include <ATen/ops/zeros.h>

#include <cstring>
#include <utility>

#include "channel/checked_channel.h"
#include "channel/message.h"
#include "core/bytes.h"
#include "queue/operation_runner.h"
#include "queue/queue.h"
#include "shm/offer.h"
#include "shm/slot_ring.h"
#include "shm/team.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

// The memory has the team of the two ranks, then the ring.
class SharedChannel : public CheckedChannel, private OperationRunner {
 public:
  SharedChannel(Group pair, int depth, std::shared_ptr<SharedMemory> memory, WaitSettings settings, std::shared_ptr<Ring> ring)
      : CheckedChannel(std::move(pair), depth, at::kCPU),
        settings_(std::move(settings)),
        memory_(std::move(memory)),
        slots_(*memory_, Team::bytes_for(2), depth) {
    ring_ = std::move(ring);
    timeout_ = settings_.timeout;
    run_task(WaitPolicy::Style::caller,
             [this](WaitPolicy& policy) { team_ = std::make_unique<Team>(this->pair(), memory_, policy); });
  }

 protected:
  Work put(std::vector<at::Tensor> tensors) override {
    run(CallKind::send, [&] { write(tensors); });
    return Work();
  }
  Received take() override {
    Received received;
    run(CallKind::recv, [&] { received.tensors = read(); });
    return received;
  }

 private:
  int peer() const { return 1 - pair().rank; }
  const Group& group() const override { return pair(); }
  const std::string& backend_name() const override { return settings_.backend; }
  void check_wait() const override { settings_.check_abort(); }

  // Moves one message by `move`. The queue never has a thread: it only repeats the first failure to later calls.
  template <class Move>
  void run(CallKind kind, const Move& move) {
    Operation operation{.kind = kind, .peer = peer()};
    operation.call = {.kind = kind, .peer = peer(), .tensors = 0};
    record_call(*ring_, operation);
    failures_.run_now([&](WaitPolicy::Style style) {
      run_operation(operation, style, [this, &move](WaitPolicy& policy) {
        team_->set_wait_policy(policy);
        move();
      });
    });
  }

  void write(const std::vector<at::Tensor>& tensors) {
    MessageShapes shapes = shapes_of(tensors);
    const bool is_new = shapes != shapes_;
    const size_t shape_bytes = is_new ? whole_lines(shapes.size() * sizeof(int64_t)) : 0;
    const size_t bytes = shape_bytes + for_each_place(tensors, [](const at::Tensor&, size_t) {});
    team_->await_peer(slots_.taken(), slots_.next_vacancy(), peer());
    char* slot = slots_.writable(bytes);
    if (shape_bytes > 0) std::memcpy(slot, shapes.data(), shapes.size() * sizeof(int64_t));
    for_each_place(tensors, [&](const at::Tensor& tensor, size_t offset) {
      std::memcpy(slot + shape_bytes + offset, tensor.const_data_ptr(), tensor.nbytes());
    });
    slots_.notice().shape_words = is_new ? static_cast<int64_t>(shapes.size()) : -1;
    if (is_new) shapes_ = std::move(shapes);
    slots_.pass(slots_.sent());
  }

  std::vector<at::Tensor> read() {
    team_->await_peer(slots_.sent(), slots_.next_message(), peer());
    const char* slot = slots_.readable();
    if (const int64_t words = slots_.notice().shape_words; words >= 0) {
      shapes_.resize(static_cast<size_t>(words));
      if (words > 0) std::memcpy(shapes_.data(), slot, shapes_.size() * sizeof(int64_t));
      slot += whole_lines(shapes_.size() * sizeof(int64_t));
    }
    std::vector<at::Tensor> tensors = make_tensors(shapes_, at::kCPU);
    for_each_place(
        tensors, [&](const at::Tensor& tensor, size_t offset) { std::memcpy(bytes_of(tensor), slot + offset, tensor.nbytes()); });
    slots_.pass(slots_.taken());
    return tensors;
  }

  const WaitSettings settings_;
  const std::shared_ptr<SharedMemory> memory_;
  SlotRing slots_;
  std::unique_ptr<Team> team_;  // how the ranks wait for each other
  MessageShapes shapes_;        // of the last message
  Queue failures_;
};

void send_offer(Communicator& whole, int peer, const Offer& offer) {
  const at::Tensor bytes = at::zeros({sizeof(Offer)}, at::kByte);
  std::memcpy(bytes_of(bytes), &offer, sizeof(Offer));
  whole.send(bytes, peer);
}

Offer receive_offer(Communicator& whole, int peer) {
  const at::Tensor bytes = at::zeros({sizeof(Offer)}, at::kByte);
  whole.recv(bytes, peer);
  Offer offer;
  std::memcpy(static_cast<void*>(&offer), bytes_of(bytes), sizeof(Offer));
  return offer;
}

// Creates the memory at the sender and opens it at the receiver. A failure of one is a Fault of both.
std::shared_ptr<SharedMemory> meet(Communicator& whole, const ChannelPlan& plan, bool is_sender, size_t bytes) {
  auto memory = std::make_shared<SharedMemory>();
  Offer mine, theirs;
  if (is_sender) {
    attempt_or_complain(mine, [&] {
      *memory = SharedMemory::create(bytes, Pages::on_demand);
      mine.address = memory->address();
    });
    send_offer(whole, plan.to, mine);
    theirs = receive_offer(whole, plan.to);
  } else {
    theirs = receive_offer(whole, plan.from);
    if (!theirs.is_complaint()) attempt_or_complain(mine, [&] { *memory = SharedMemory::open(theirs.address); });
    send_offer(whole, plan.from, mine);
  }
  for (const Offer& offer : {mine, theirs}) {
    if (offer.is_complaint()) fault("channel '{}' cannot be made: {}", plan.name, offer.complaint.data());
  }
  return memory;
}

}  // namespace

std::shared_ptr<Channel> make_shared_channel(const ChannelPlan& plan, Communicator& whole, Group pair, WaitSettings settings,
                                             const std::shared_ptr<BlackBox>& box) {
  auto memory = meet(whole, plan, pair.rank == 0, shared_channel_bytes(plan.depth));
  auto ring = open_ring(box, pair, settings.backend);
  return open_shared_channel(plan.depth, std::move(pair), std::move(memory), std::move(settings), std::move(ring));
}

std::shared_ptr<Channel> open_shared_channel(int depth, Group pair, std::shared_ptr<SharedMemory> memory, WaitSettings settings,
                                             std::shared_ptr<Ring> ring) {
  return std::make_shared<SharedChannel>(std::move(pair), depth, std::move(memory), std::move(settings), std::move(ring));
}

size_t shared_channel_bytes(int depth) {
  return Team::bytes_for(2) + SlotRing::bytes_for(depth);
}

}  // namespace zt::comm
