#include "nccl/link.h"

#include <algorithm>

#include "queue/wait_policy.h"
#include "recorder/report.h"
#include "zt/base/error.h"
#include "zt/process/trace.h"

namespace zt::comm {

namespace {

// As for the other backends, below the 5 s within which a failed run must end.
constexpr std::chrono::milliseconds kGrace(2000);

}  // namespace

Link::Link(const NcclApi& api, std::shared_ptr<const StreamApi> streams, Group group, ncclComm_t comm)
    : api_(api), streams_(std::move(streams)), stream_(streams_->take_from_pool()), group_(std::move(group)), comm_(comm) {}

Link::~Link() {
  if (!comm_) return;
  try {
    WaitPolicy policy(WaitPolicy::Style::caller, std::min(timeout_, kGrace), [] {});
    while (!poll() && policy.pause()) {
    }
  } catch (const std::exception&) {
    // The device failed, so the outstanding operations never complete.
  }
  // With outstanding operations, destroying it would wait for a peer that may be gone.
  if (outstanding_.empty()) {
    api_.retired->add(comm_, streams_->device());
    streams_->give_back(stream_);
  } else {
    fail("it was closed while operations waited");
  }
}

std::shared_ptr<Link> Link::connect(const NcclApi& api, std::shared_ptr<const StreamApi> streams, Group group,
                                    const ncclUniqueId& id) {
  free_retired(api, *streams);
  ncclComm_t comm = nullptr;
  check_nccl(api, api.comm_init_rank(&comm, group.size(), id, group.rank), "comm_init_rank");
  return std::make_shared<Link>(api, std::move(streams), std::move(group), comm);
}

void Link::check_usable() const {
  if (!comm_) fault("axis '{}': the communicator failed before and cannot be used any more: {}", group_.name, failure_);
}

void Link::begin(const Operation& operation) {
  if (ring_) ring_->start(operation.number, now_ns());
  void* ready = streams_->record(streams_->current());
  streams_->block(ready, stream_);
  streams_->destroy(ready);
}

std::shared_ptr<StartedOperation> Link::add(const Operation& operation) {
  std::shared_ptr<void> event(streams_->record(stream_), [streams = streams_](void* made) { streams->destroy(made); });
  outstanding_.push_back(std::make_shared<StartedOperation>(operation.number, operation.turn, operation.call, std::move(event)));
  return outstanding_.back();
}

void Link::refuse(const Operation& operation) {
  note_end(operation.number, CallStage::failed);
}

bool Link::poll() {
  while (!outstanding_.empty() && streams_->query(outstanding_.front()->event.get())) end_oldest(CallStage::done);
  return outstanding_.empty();
}

bool Link::is_over(const StartedOperation& started) {
  if (started.stage != CallStage::running) return true;
  if (!streams_->query(started.event.get())) return false;
  while (started.stage == CallStage::running) end_oldest(CallStage::done);
  return true;
}

void Link::wait(const StartedOperation& started) const {
  if (started.stage == CallStage::failed || started.stage == CallStage::timed_out) check_usable();
  streams_->block(started.event.get(), streams_->current());
}

void Link::finish(const StartedOperation& started) {
  try {
    WaitPolicy policy(WaitPolicy::Style::caller, timeout_, [&] { check_peers(started); });
    while (!is_over(started)) {
      if (!policy.pause()) time_out(started);
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail_with(fmt::format("{}, and the device fails: {}", where(started), describe(error)));
  }
  if (started.stage == CallStage::failed || started.stage == CallStage::timed_out) check_usable();
}

void Link::time_out(const StartedOperation& started) {
  const std::string why = fmt::format(
      "communication timed out after {} s: {} (backend nccl). Did a rank fail, or make other calls? If the operation only needs "
      "longer: axis:set_timeout(seconds)",
      std::chrono::duration<double>(timeout_).count(), where(started));
  fail(why, CallStage::timed_out);
  report_stuck();
  throw Fault(why);
}

void Link::drain() {
  check_usable();
  if (outstanding_.empty()) return;
  const auto last = outstanding_.back();
  finish(*last);
}

void Link::fail(const std::string& why, CallStage stage) {
  if (!comm_) return;
  try {
    poll();
  } catch (const std::exception&) {
    // The device failed, too, so no further operation completes.
  }
  while (!outstanding_.empty()) end_oldest(stage);
  failure_ = why;
  api_.comm_abort(std::exchange(comm_, nullptr));
}

void Link::fail_with(const std::string& why) {
  fail(why);
  throw Fault(why);
}

void Link::end_oldest(CallStage stage) {
  StartedOperation& oldest = *outstanding_.front();
  oldest.stage = stage;
  note_end(oldest.number, stage);
  outstanding_.pop_front();
}

void Link::note_end(uint64_t number, CallStage stage) const {
  if (ring_) ring_->end(number, stage, now_ns());
}

void Link::check_peers(const StartedOperation& started) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t answer = api_.comm_get_async_error(comm_, &state);
  if (answer != ncclSuccess) state = answer;
  if (state == ncclSuccess || state == ncclInProgress) return;
  fail_with(fmt::format("{}: NCCL reports {}: a peer may be gone", where(started), api_.get_error_string(state)));
}

std::string Link::where(const StartedOperation& started) const {
  return fmt::format("{} of axis '{}' waits in operation {}, {}", group_.rank_name(group_.rank), group_.name, started.turn,
                     started.call.text(group_));
}

}  // namespace zt::comm
