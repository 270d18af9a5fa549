#include "queued_backend.h"

#include "pack.h"
#include "zt/base/error.h"

namespace zt::comm {

// Sends small tensors packed into one, and long tensors alone.
void QueuedBackend::run_list(const Operation& operation, WaitPolicy& policy) {
  const Packing packing(operation, group().size());
  for (const size_t i : packing.alone()) run_single(packing.single(i), policy);
  if (packing.empty()) return;
  const Operation packed = packing.pack();
  run_single(packed, policy);
  packing.unpack(packed);
}

Work QueuedBackend::submit(Operation operation, Async async) {
  if (async == Async::yes)
    return queue_.submit([this, operation = std::move(operation)](WaitPolicy::Style style) { run(operation, style); });
  queue_.run_now([&](WaitPolicy::Style style) { run(operation, style); });
  return Work();
}

void QueuedBackend::run_in_turn(const Body& task) {
  std::exception_ptr declined;
  queue_.run_now([&](WaitPolicy::Style style) {
    try {
      run_task(style, task);
    } catch (const Declined&) {
      declined = std::current_exception();
    }
  });
  if (declined) std::rethrow_exception(declined);
}

void QueuedBackend::run(const Operation& operation, WaitPolicy::Style style) {
  run_operation(operation, style, [&](WaitPolicy& policy) {
    if (operation.turn < kCheckedFirst || check_ == CheckMode::full) compare(operation, policy);
    if (operation.in.size() > 1 || operation.out.size() > 1) run_list(operation, policy);
    else run_single(operation, policy);
  });
}

void QueuedBackend::check_wait() const {
  check_abort();
  if (queue_.cancelled()) throw Aborted("the communicator was closed while it waited");
}

}  // namespace zt::comm
