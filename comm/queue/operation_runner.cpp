#include "operation_runner.h"

#include <mutex>

#include "recorder/report.h"
#include "zt/process/trace.h"

namespace zt::comm {

WaitPolicy OperationRunner::policy(WaitPolicy::Style style, EndWatch& watch, int64_t begin_ns) const {
  return {style, timeout_, [this] { check_wait(); }, begin_ns, [&watch] { watch.look(); }};
}

void OperationRunner::run_task(WaitPolicy::Style style, const Body& body) const {
  EndWatch watch(group(), copy(), nullptr);
  WaitPolicy waiting = policy(style, watch);
  const auto fail = [&](const std::vector<int>& peers, const char* what) {
    fault("{} of axis '{}' waits for {}{} to allocate memory or to make a communicator: all ranks have to make this call",
          group().rank_name(group().rank), group().name, names_of(peers), what);
  };
  try {
    body(waiting);
  } catch (const TimedOut& late) {
    fail(late.peers, "");
  } catch (const PeersEnded& ended) {
    fail(ended.peers, ended.peers.size() > 1 ? ", whose scripts have ended," : ", whose script has ended,");
  }
}

void OperationRunner::run_operation(const Operation& operation, WaitPolicy::Style style, const Body& body) {
  // An operation that runs in the caller begins when it is called: queued_ns saves reading the clock again.
  EndWatch watch(group(), copy(), &operation);
  WaitPolicy waiting = policy(style, watch, style == WaitPolicy::Style::caller ? operation.queued_ns : 0);
  if (ring_) ring_->start(operation.number, waiting.begin_ns());
  try {
    run_explained(operation, waiting, body);
    if (ring_) ring_->end(operation.number, CallStage::done, now_ns());
  } catch (const TimedOut& late) {
    give_up(operation);
    report(late, operation);
  } catch (const PeersEnded& ended) {
    give_up(operation);
    report(ended, operation);
  } catch (...) {
    if (ring_) ring_->end(operation.number, CallStage::failed, now_ns());
    keep_forever(operation);
    throw;
  }
}

void OperationRunner::give_up(const Operation& operation) {
  if (ring_) ring_->end(operation.number, CallStage::timed_out, now_ns());
  keep_forever(operation);
  report_stuck();
}

void OperationRunner::run_explained(const Operation& operation, WaitPolicy& policy, const Body& body) const {
  try {
    body(policy);
  } catch (const Aborted&) {
    throw;
  } catch (const Fault& failure) {
    fault("{} on axis '{}' failed, operation {} of {} on {}: {}", operation.call.text(group()), group().name, operation.turn,
          group().rank_name(group().rank), backend_name(), failure.what());
  }
}

std::string OperationRunner::names_of(const std::vector<int>& peers) const {
  std::string names;
  for (const int peer : peers) names += (names.empty() ? "" : ", ") + group().rank_name(peer);
  return names;
}

void OperationRunner::report(const TimedOut& late, const Operation& operation) const {
  const auto seconds = std::chrono::duration<double>(timeout_.load()).count();
  fault(
      "communication timed out after {} s: {} of axis '{}' waits in operation {}, {}, for {} (backend {}). Did a rank fail, or "
      "make other calls? If the operation only needs longer: axis:set_timeout(seconds)",
      seconds, group().rank_name(group().rank), group().name, operation.turn, operation.call.text(group()), names_of(late.peers),
      backend_name());
}

void OperationRunner::report(const PeersEnded& ended, const Operation& operation) const {
  fault(
      "{} of axis '{}' waits in operation {}, {}, for {}, whose script{} ended (backend {}): all ranks have to make the same "
      "calls in the same order. Did a script return or call os.exit before its last call?",
      group().rank_name(group().rank), group().name, operation.turn, operation.call.text(group()), names_of(ended.peers),
      ended.peers.size() > 1 ? "s have" : " has", backend_name());
}

// Keeps the memory of the operation for ever: a peer may still write or read it.
void OperationRunner::keep_forever(const Operation& operation) {
  struct Kept {
    std::mutex mutex;
    std::vector<at::Tensor> tensors;
  };
  static auto& kept = *new Kept;
  const std::lock_guard lock(kept.mutex);
  kept.tensors.insert(kept.tensors.end(), operation.out.begin(), operation.out.end());
  kept.tensors.insert(kept.tensors.end(), operation.in.begin(), operation.in.end());
  kept.tensors.push_back(take_scratch());
}

}  // namespace zt::comm
