#include "transfer_rounds.h"

#include <numeric>

#include "execute/counts.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

// Cuts a range of bytes into parts of these sizes, one after the other.
std::vector<at::Tensor> cut_bytes(const at::Tensor& bytes, const std::vector<int64_t>& sizes) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(bytes.narrow(0, begin, size));
    begin += size;
  }
  return parts;
}

// The memory through which ranks give bytes to one another.
class Buckets {
 public:
  virtual ~Buckets() = default;
  // Returns where this rank puts what it sends in a round, by peer.
  virtual std::vector<at::Tensor> to_send(const TransferRound& round) = 0;
  // Returns what has come from each peer, which stays there until the exchange of the next round. Collective.
  virtual std::vector<at::Tensor> exchange(const TransferRound& round) = 0;
};

// Memory of all ranks: each has a slot for every other round, and receivers read it there.
class SharedBuckets final : public Buckets {
 public:
  SharedBuckets(Communicator& comm, int64_t slot_bytes)
      : comm_(comm), slots_(comm.allocate_shared({2, comm.size(), slot_bytes}, at::kByte)) {}
  std::vector<at::Tensor> to_send(const TransferRound& round) override {
    half_ = 1 - half_;
    return cut_bytes(slots_.select(0, half_).select(0, comm_.rank()), round.sent_bytes);
  }
  // Who has come here has read what was sent in the round before.
  std::vector<at::Tensor> exchange(const TransferRound& round) override {
    comm_.barrier();
    std::vector<at::Tensor> parts;
    for (int peer = 0; peer < comm_.size(); ++peer)
      parts.push_back(slots_.select(0, half_).select(0, peer).narrow(0, round.received_at[peer], round.received_bytes[peer]));
    return parts;
  }

 private:
  Communicator& comm_;
  const at::Tensor slots_;  // [2, ranks, bytes]
  int half_ = 0;
};

// Memory of this rank only.
class OwnBuckets final : public Buckets {
 public:
  OwnBuckets(Communicator& comm, int64_t bytes) : comm_(comm), bucket_(comm.allocate({bytes}, at::kByte)) {}
  std::vector<at::Tensor> to_send(const TransferRound& round) override { return cut_bytes(bucket_, round.sent_bytes); }
  std::vector<at::Tensor> exchange(const TransferRound& round) override {
    const auto sum = [](const std::vector<int64_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); };
    const int64_t sent = sum(round.sent_bytes);
    const at::Tensor arrived = bucket_.narrow(0, sent, sum(round.received_bytes));
    comm_.all_to_all(arrived, bucket_.narrow(0, 0, sent), round.received_bytes, round.sent_bytes).wait();
    return cut_bytes(arrived, round.received_bytes);
  }

 private:
  Communicator& comm_;
  const at::Tensor bucket_;
};

std::unique_ptr<Buckets> make_buckets(const TransferPlan& plan, Communicator* comm) {
  if (!comm || plan.bucket_bytes == 0) return nullptr;
  if (comm->shares_memory()) return std::make_unique<SharedBuckets>(*comm, plan.sent_bytes);
  return std::make_unique<OwnBuckets>(*comm, plan.bucket_bytes);
}

// Calls visit(run, bytes, place) for the runs of all peers: the peer's bytes, and where those of the run begin there.
template <class Visit>
void for_each_in_bytes(const std::vector<std::vector<TransferRun>>& runs, const std::vector<TransferEnds>& ends,
                       const std::vector<at::Tensor>& bytes, const Visit& visit) {
  for (size_t peer = 0; peer < runs.size(); ++peer) {
    int64_t place = 0;
    for (const TransferRun& run : runs[peer]) {
      visit(run, bytes[peer], place);
      place += bytes_in_bucket(run, size_of(ends[run.lane].travels));
    }
  }
}

class RoundMover {
 public:
  RoundMover(const std::vector<TransferEnds>& ends, Buckets* buckets, FirstFailure& failure)
      : ends_(ends), buckets_(buckets), failure_(failure) {
    for (const TransferEnds& each : ends)
      hosts_.push_back({each.source ? each.source->host() : HostElements{}, each.target ? each.target->host() : HostElements{}});
  }

  void move(const TransferRound& round) {
    std::vector<at::Tensor> arrived;
    if (round.communicates) {
      const std::vector<at::Tensor> places = buckets_->to_send(round);
      failure_.attempt([&] {
        for_each_in_bytes(round.sent, ends_, places,
                          [&](const TransferRun& run, const at::Tensor& bytes, int64_t place) { put(run, bytes, place); });
      });
      arrived = buckets_->exchange(round);
    }
    failure_.attempt([&] { take(round, arrived); });
  }

  MovedBytes moved() const { return moved_; }

 private:
  void take(const TransferRound& round, const std::vector<at::Tensor>& arrived) {
    if (round.communicates)
      for_each_in_bytes(round.received, ends_, arrived,
                        [&](const TransferRun& run, const at::Tensor& bytes, int64_t place) { take_from(run, bytes, place); });
    for (const TransferRun& run : round.local) take_own(run);
    for (const auto& [lane, part] : round.completed) ends_[lane].target->complete(part);
  }

  // Returns where the elements of a run lie among the bytes that are for a peer or from it.
  HostElements in_bytes(const TransferRun& run, const at::Tensor& bytes, int64_t place) const {
    if (!bytes.is_cpu()) return {};
    return {static_cast<char*>(bytes.mutable_data_ptr()) + place, ends_[run.lane].travels};
  }
  at::Tensor tensor_in_bytes(const TransferRun& run, const at::Tensor& bytes, int64_t place) const {
    const at::ScalarType dtype = ends_[run.lane].travels;
    return bytes.narrow(0, place, run.numel() * size_of(dtype)).view(dtype).view({run.times, run.count});
  }

  void put(const TransferRun& run, const at::Tensor& bytes, int64_t place) {
    const Stretches packed{0, run.count}, of{run.from, run.from_stride};
    const HostElements to = in_bytes(run, bytes, place);
    if (!copy_on_host(to, packed, hosts_[run.lane].source, of, run.count, run.times, CacheUse::keep))
      copy_elements(tensor_in_bytes(run, bytes, place), ends_[run.lane].source->elements(run), CacheUse::keep);
    moved_.sent += run.numel() * size_of(ends_[run.lane].travels);
  }
  void take_from(const TransferRun& run, const at::Tensor& bytes, int64_t place) {
    const Stretches packed{0, run.count}, into{run.to, run.to_stride};
    const HostElements from = in_bytes(run, bytes, place);
    if (!copy_on_host(hosts_[run.lane].target, into, from, packed, run.count, run.times, CacheUse::bypass))
      ends_[run.lane].target->take(run, tensor_in_bytes(run, bytes, place));
  }
  void take_own(const TransferRun& run) {
    const Stretches of{run.from, run.from_stride}, into{run.to, run.to_stride};
    const auto& [source, target] = hosts_[run.lane];
    if (!copy_on_host(target, into, source, of, run.count, run.times, CacheUse::bypass))
      ends_[run.lane].target->take(run, ends_[run.lane].source->elements(run));
    moved_.local += run.numel() * size_of(ends_[run.lane].travels);
  }

  struct LaneHosts {
    HostElements source, target;
  };

  const std::vector<TransferEnds>& ends_;
  std::vector<LaneHosts> hosts_;  // by lane
  Buckets* buckets_;
  FirstFailure& failure_;
  MovedBytes moved_;
};

}  // namespace

void FirstFailure::attempt(const std::function<void()>& body) {
  if (first_) return;
  try {
    body();
  } catch (...) {
    first_ = std::current_exception();
  }
}

// A Fault of this rank, such as a file that cannot be read, is told as an error of another family, so that all ranks throw.
void FirstFailure::share(Communicator* control) const {
  run_together(control, [&] {
    if (!first_) return;
    try {
      std::rethrow_exception(first_);
    } catch (const Misuse&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(describe(error));
    }
  });
}

MovedBytes move_rounds(const TransferPlan& plan, const std::vector<TransferEnds>& ends, Communicator* comm,
                       FirstFailure& failure) {
  const std::unique_ptr<Buckets> buckets = make_buckets(plan, comm);
  RoundMover mover(ends, buckets.get(), failure);
  for (const TransferRound& round : plan.rounds) mover.move(round);
  return mover.moved();
}

}  // namespace zt
