#include "host_backend.h"

namespace zt::comm {

void HostBackend::run_single(const Operation& operation, WaitPolicy& policy) {
  const Site site{*transport_, policy, staging_};
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

void HostBackend::compare(const Operation& operation, WaitPolicy& policy) {
  comm::compare(Site{*transport_, policy, staging_}, operation);
}

std::unique_ptr<Backend> HostBackend::duplicate(const std::string& name) {
  auto copy = std::make_unique<HostBackend>(transport_->duplicate(name));
  copy->set_timeout(timeout());
  copy->set_check(check());
  return copy;
}

}  // namespace zt::comm
