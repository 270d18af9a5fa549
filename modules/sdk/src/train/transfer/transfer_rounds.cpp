#include "transfer_rounds.h"

#include <ATen/ops/empty.h>

#include <numeric>
#include <optional>

#include "execute/counts.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

int64_t sum_of(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// Calls visit(run, elements) for the runs of all peers: `elements` is their place in the bucket, [times, count].
template <class Visit>
void for_each_in_bucket(const std::vector<std::vector<TransferRun>>& runs, const std::vector<TransferEnds>& ends,
                        const at::Tensor& bucket, const Visit& visit) {
  int64_t place = 0;
  for (const auto& of_peer : runs) {
    for (const TransferRun& run : of_peer) {
      const at::ScalarType dtype = ends[run.lane].travels;
      const at::Tensor elements = bucket.narrow(0, place, run.numel() * size_of(dtype)).view(dtype).view({run.times, run.count});
      visit(run, elements);
      place += bytes_in_bucket(run, size_of(dtype));
    }
  }
}

class Mover {
 public:
  Mover(const std::vector<TransferEnds>& ends, Communicator* comm, const at::Tensor& bucket, FirstFailure& failure)
      : ends_(ends), comm_(comm), bucket_(bucket), failure_(failure) {}

  void move(const TransferRound& round) {
    const int64_t to_send = sum_of(round.sent_bytes), to_receive = sum_of(round.received_bytes);
    Work work;
    at::Tensor arrived;
    if (round.communicates) {
      const at::Tensor sent = bucket_.narrow(0, 0, to_send);
      arrived = bucket_.narrow(0, to_send, to_receive);
      failure_.attempt([&] {
        for_each_in_bucket(round.sent, ends_, sent,
                           [&](const TransferRun& run, const at::Tensor& place) {
                             at::Tensor(place).copy_(ends_[run.lane].source->elements(run));
                             moved_.sent += run.numel() * size_of(ends_[run.lane].travels);
                           });
      });
      work = comm_->all_to_all(arrived, sent, round.received_bytes, round.sent_bytes, Async::no);
    }
    failure_.attempt([&] {
      for (const TransferRun& run : round.local) {
        ends_[run.lane].target->take(run, ends_[run.lane].source->elements(run));
        moved_.local += run.numel() * size_of(ends_[run.lane].travels);
      }
    });
    work.wait();
    failure_.attempt([&] {
      if (round.communicates)
        for_each_in_bucket(round.received, ends_, arrived, [&](const TransferRun& run, const at::Tensor& values) {
          ends_[run.lane].target->take(run, values);
        });
      for (const auto& [lane, part] : round.completed) ends_[lane].target->complete(part);
    });
  }

  MovedBytes moved() const { return moved_; }

 private:
  const std::vector<TransferEnds>& ends_;
  Communicator* comm_;
  const at::Tensor bucket_;
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

MovedBytes move_rounds(const TransferPlan& plan, const std::vector<TransferEnds>& ends, Communicator* comm, at::Device device,
                       FirstFailure& failure) {
  const bool has_bucket = comm && plan.bucket_bytes > 0;
  const at::Tensor bucket = has_bucket ? comm->allocate({plan.bucket_bytes}, at::kByte)
                                       : at::empty({0}, at::device(device).dtype(at::kByte));
  Mover mover(ends, comm, bucket, failure);
  for (const TransferRound& round : plan.rounds) mover.move(round);
  return mover.moved();
}

}  // namespace zt
