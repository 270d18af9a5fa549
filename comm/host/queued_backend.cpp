#include "host/queued_backend.h"

#include <mutex>

#include "host/pack.h"
#include "host/transport.h"
#include "zt/error.h"

namespace zt::comm {

// Small tensors travel as one, long ones as they are.
void QueuedBackend::run_list(const Operation& operation, Patience& patience) {
  const Packing packing(operation, group().size());
  for (const size_t i : packing.alone()) run_single(packing.single(i), patience);
  if (packing.empty()) return;
  const Operation packed = packing.pack();
  run_single(packed, patience);
  packing.unpack(packed);
}

Work QueuedBackend::submit(Operation operation, Async async) {
  const uint64_t number = operations_++;
  if (async == Async::yes) {
    return queue_.submit(
        [this, number, operation = std::move(operation)](Patience::Style style) { run(operation, number, style); });
  }
  queue_.run_now([&](Patience::Style style) { run(operation, number, style); });
  return Work();
}

Patience QueuedBackend::patience(Patience::Style style) const {
  return {style, timeout_, [this] {
            check_abort();
            if (queue_.cancelled()) throw Aborted("the communicator was closed while it waited");
          }};
}

void QueuedBackend::run_task(const std::function<void(Patience&)>& task) {
  queue_.run_now([&](Patience::Style style) {
    Patience waiting = patience(style);
    try {
      task(waiting);
    } catch (const TimedOut& late) {
      fault("{} of axis '{}' waits for {} to allocate or to make a communicator: all ranks have to", group().who(group().rank),
            group().name, names_of(late.peers));
    }
  });
}

void QueuedBackend::run(const Operation& operation, uint64_t number, Patience::Style style) {
  Patience waiting = patience(style);
  try {
    if (operation.in.size() > 1 || operation.out.size() > 1) run_list(operation, waiting);
    else run_single(operation, waiting);
  } catch (const TimedOut& late) {
    keep_forever(operation);
    report(late.peers, operation, number);
  } catch (const Aborted&) {
    keep_forever(operation);
    throw;
  } catch (const Fault& failure) {
    keep_forever(operation);
    fault("{} on axis '{}' failed, operation {} of {} on {}: {}", operation.text(group()), group().name, number,
          group().who(group().rank), name(), failure.what());
  }
}

std::string QueuedBackend::names_of(const std::vector<int>& peers) const {
  std::string names;
  for (const int peer : peers) names += (names.empty() ? "" : ", ") + group().who(peer);
  return names;
}

void QueuedBackend::report(const std::vector<int>& peers, const Operation& operation, uint64_t number) const {
  const auto seconds = std::chrono::duration<double>(timeout_.load()).count();
  fault(
      "communication timed out after {} s: {} of axis '{}' waits in operation {}, {}, for {} (backend {}). Did it fail, or take "
      "another path? If it only needs longer: axis:set_timeout(seconds)",
      seconds, group().who(group().rank), group().name, number, operation.text(group()), names_of(peers), name());
}

// A message that a peer still holds may be written or read later: its memory is never given back.
void QueuedBackend::keep_forever(const Operation& operation) {
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
