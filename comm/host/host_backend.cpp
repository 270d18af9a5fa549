#include "host/host_backend.h"

#include <mutex>

#include "host/pack.h"
#include "zt/error.h"

namespace zt::comm {

namespace {

void run_single(Site site, const Operation& operation) {
  switch (operation.kind) {
    case Kind::all_reduce:
      return all_reduce(site, operation);
    case Kind::reduce_scatter:
      return reduce_scatter(site, operation);
    case Kind::all_gather:
      return all_gather(site, operation);
    case Kind::broadcast:
      return broadcast(site, operation);
    case Kind::reduce:
      return reduce(site, operation);
    case Kind::gather:
      return gather(site, operation);
    case Kind::scatter:
      return scatter(site, operation);
    case Kind::all_to_all:
      return all_to_all(site, operation);
    case Kind::send:
      return send(site, operation);
    case Kind::recv:
      return recv(site, operation);
    case Kind::barrier:
      return barrier(site, operation);
  }
}

// Small tensors travel as one, long ones as they are.
void run_list(Site site, const Operation& operation) {
  const Packing packing(operation, site.size());
  for (const size_t i : packing.alone()) run_single(site, packing.single(i));
  if (packing.empty()) return;
  const Operation packed = packing.pack();
  run_single(site, packed);
  packing.unpack(packed);
}

}  // namespace

Work HostBackend::submit(Operation operation, Async async) {
  const uint64_t number = operations_++;
  return queue_.submit([this, number, operation = std::move(operation)](Patience::Style style) { run(operation, number, style); },
                       async);
}

void HostBackend::run(const Operation& operation, uint64_t number, Patience::Style style) {
  Patience patience(style, timeout_, [this] {
    transport_->check_abort();
    if (queue_.cancelled()) throw Aborted("the communicator was closed while it waited");
  });
  const Site site{*transport_, patience, staging_};
  try {
    if (operation.in.size() > 1 || operation.out.size() > 1) run_list(site, operation);
    else run_single(site, operation);
  } catch (const TimedOut& late) {
    keep_forever(operation);
    report(late, operation, number);
  } catch (const Aborted&) {
    keep_forever(operation);
    throw;
  } catch (const Fault& failure) {
    keep_forever(operation);
    fault("{} on axis '{}' failed, operation {} of {} on {}: {}", operation.text(group()), group().name, number,
          group().who(group().rank), name(), failure.what());
  }
}

void HostBackend::report(const TimedOut& late, const Operation& operation, uint64_t number) const {
  std::string peers;
  for (const int peer : late.peers) peers += (peers.empty() ? "" : ", ") + group().who(peer);
  const auto seconds = std::chrono::duration<double>(timeout_.load()).count();
  fault(
      "communication timed out after {} s: {} of axis '{}' waits in operation {}, {}, for {} (backend {}). Did it fail, or take "
      "another path? If it only needs longer: axis:set_timeout(seconds)",
      seconds, group().who(group().rank), group().name, number, operation.text(group()), peers, name());
}

// A message that a peer still holds may be written or read later: its memory is never given back.
void HostBackend::keep_forever(const Operation& operation) {
  struct Kept {
    std::mutex mutex;
    std::vector<at::Tensor> tensors;
  };
  static auto& kept = *new Kept;
  const std::lock_guard lock(kept.mutex);
  kept.tensors.insert(kept.tensors.end(), operation.out.begin(), operation.out.end());
  kept.tensors.insert(kept.tensors.end(), operation.in.begin(), operation.in.end());
  kept.tensors.push_back(staging_.release());
}

std::unique_ptr<Backend> HostBackend::duplicate(const std::string& name) {
  auto copy = std::make_unique<HostBackend>(transport_->duplicate(name));
  copy->set_timeout(timeout_);
  return copy;
}

}  // namespace zt::comm
