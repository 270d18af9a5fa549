#include "host_backend.h"

#include "backend/checked.h"
#include "channel/message_channel.h"
#include "shm/shared_channel.h"

namespace zt::comm {

void HostBackend::run_single(const Operation& operation, WaitPolicy& policy) {
  const Site site{*transport_, policy, staging_};
  switch (operation.kind) {
    case CallKind::all_reduce:
      return all_reduce(site, operation);
    case CallKind::reduce_scatter:
      return reduce_scatter(site, operation);
    case CallKind::all_gather:
      return all_gather(site, operation);
    case CallKind::broadcast:
      return broadcast(site, operation);
    case CallKind::reduce:
      return reduce(site, operation);
    case CallKind::gather:
      return gather(site, operation);
    case CallKind::scatter:
      return scatter(site, operation);
    case CallKind::all_to_all:
      return all_to_all(site, operation);
    case CallKind::send:
      return send(site, operation);
    case CallKind::recv:
      return recv(site, operation);
    case CallKind::barrier:
      return barrier(site, operation);
  }
}

void HostBackend::compare(const Operation& operation, WaitPolicy& policy) {
  comm::compare(Site{*transport_, policy, staging_}, operation);
}

std::unique_ptr<Backend> HostBackend::duplicate(const std::string& name) {
  return wrap(transport_->duplicate(name));
}

// Makes a backend with the settings of this one.
std::unique_ptr<Backend> HostBackend::wrap(std::unique_ptr<Transport> transport) const {
  auto backend = std::make_unique<HostBackend>(std::move(transport));
  backend->set_timeout(timeout());
  backend->set_check(check());
  return backend;
}

std::shared_ptr<Channel> HostBackend::channel(const ChannelPlan& plan, Communicator& whole, std::shared_ptr<BlackBox> box) {
  if (shares_memory()) return make_shared_channel(plan, whole, plan.pair(group()), {name(), check_abort_, timeout()}, box);
  auto ends = transport_->pair(plan);
  auto answers = ends->duplicate(plan.name + "/taken");
  return make_message_channel(plan.pair(group()), plan.depth, std::make_shared<CheckedCommunicator>(wrap(std::move(ends)), box),
                              std::make_shared<CheckedCommunicator>(wrap(std::move(answers)), box));
}

}  // namespace zt::comm
