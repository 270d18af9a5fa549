#include "host_backend.h"

#include "backend/checked.h"
#include "channel/message_channel.h"
#include "shm/shared_channel.h"

namespace zt::comm {

void HostBackend::run_single(const Operation& operation, WaitPolicy& policy) {
  static constexpr void (*kAlgorithms[])(Site, const Operation&) = {all_reduce, reduce_scatter, all_gather, broadcast,
                                                                    reduce,     gather,         scatter,    all_to_all,
                                                                    send,       recv,           barrier};  // by CallKind
  static_assert(std::size(kAlgorithms) == kCallKinds);
  kAlgorithms[static_cast<size_t>(operation.kind)]({*transport_, policy, staging_}, operation);
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
