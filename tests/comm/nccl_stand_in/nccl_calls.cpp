// A stand-in for NCCL for tests: several ranks share one GPU, which NCCL refuses. It has the functions that the toolkit calls.
// Data goes through host memory, so it is slow. As with NCCL, calls only add work to streams.
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fold.h"
#include "mail.h"

struct ncclComm : zt::test::stand_in::Post {
  using Post::Post;
};

namespace zt::test::stand_in {

namespace {

// A group of calls: per communicator its messages, then what follows when they have arrived.
struct Started {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<Message> messages;
  std::vector<std::function<void()>> after;
};

thread_local int depth = 0;
thread_local std::vector<Started> started;
thread_local std::string problem;

ncclResult_t guarded(const std::function<void()>& run) {
  try {
    run();
    return ncclSuccess;
  } catch (const std::exception& error) {
    problem = error.what();
    return ncclSystemError;
  }
}

Started& of(ncclComm_t comm, cudaStream_t stream) {
  for (Started& each : started) {
    if (each.comm == comm) return each;
  }
  return started.emplace_back(Started{comm, stream, {}, {}});
}

void finish_group() {
  const std::vector<Started> all = std::move(started);
  started.clear();
  for (const Started& each : all) {
    each.comm->exchange(each.messages, each.stream);
    for (const auto& run : each.after) run();
  }
}

ncclResult_t call(ncclComm_t comm, cudaStream_t stream, const std::function<void(Started&)>& add) {
  return guarded([&] {
    add(of(comm, stream));
    if (depth == 0) finish_group();
  });
}

char* place_of(const void* data, size_t offset) {
  return static_cast<char*>(const_cast<void*>(data)) + offset;
}

template <class Run>
void for_peers(ncclComm_t comm, const Run& run) {
  for (int r = 0; r < comm->size(); ++r) {
    if (r != comm->rank()) run(r);
  }
}

// Receives `bytes` from each other rank into scratch memory, in the order of the ranks.
void* gather_others(ncclComm_t comm, Started& group, size_t bytes) {
  void* others = comm->scratch(bytes * static_cast<size_t>(comm->size()));
  size_t place = 0;
  for_peers(comm, [&](int r) { group.messages.push_back({false, place_of(others, bytes * place++), bytes, r}); });
  return others;
}

// Several reductions of one group would share the scratch memory, so each is a group of its own.
ncclResult_t reduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                    cudaStream_t stream, const std::function<const char*(int)>& part_for, bool is_receiver) {
  return guarded([&] {
    if (size_of(type) == 0) throw std::runtime_error("a type that the stand-in for NCCL cannot reduce");
    const size_t bytes = count * size_of(type);
    Started group{comm, stream, {}, {}};
    for_peers(comm, [&](int r) {
      if (const char* part = part_for(r)) group.messages.push_back({true, place_of(part, 0), bytes, r});
    });
    void* others = is_receiver ? gather_others(comm, group, bytes) : nullptr;
    comm->exchange(group.messages, stream);
    if (is_receiver && count > 0) device().reduce({out, in, others, comm->rank(), comm->size(), count, type, op}, stream);
  });
}

}  // namespace

}  // namespace zt::test::stand_in

using namespace zt::test::stand_in;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : problem.c_str();
}
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string name = "/zt_nccl." + std::to_string(getpid()) + "." + std::to_string(now) + "." + std::to_string(made++);
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return guarded([&] { *comm = new ncclComm(id.internal, rank, size); });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded([&] { delete comm; });
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded([&] {
    comm->abandon();
    delete comm;
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return guarded([&] { *memory = device().allocate(bytes); });
}
ncclResult_t ncclMemFree(void* memory) {
  return guarded([&] { device().free(memory); });
}
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return guarded([&] {
    if (--depth == 0) finish_group();
  });
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, [&](Started& group) {
    group.messages.push_back({true, place_of(data, 0), count * size_of(type), peer});
  });
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, [&](Started& group) { group.messages.push_back({false, data, count * size_of(type), peer}); });
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return call(comm, stream, [&](Started& group) {
    for_peers(comm, [&](int r) {
      group.messages.push_back({true, place_of(in, 0), bytes, r});
      group.messages.push_back({false, place_of(out, bytes * static_cast<size_t>(r)), bytes, r});
    });
    char* own = place_of(out, bytes * static_cast<size_t>(comm->rank()));
    if (own != in) group.after.emplace_back([=] { device().copy(own, in, bytes, stream); });
  });
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return call(comm, stream, [&](Started& group) {
    if (comm->rank() != root) return group.messages.push_back({false, out, bytes, root});
    for_peers(comm, [&](int r) { group.messages.push_back({true, place_of(in, 0), bytes, r}); });
    if (in != out) group.after.emplace_back([=] { device().copy(out, in, bytes, stream); });
  });
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return reduce(
      in, out, count, type, op, comm, stream, [&](int) { return place_of(in, 0); }, true);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  const auto part_of = [&](int r) { return place_of(in, static_cast<size_t>(r) * count * size_of(type)); };
  return reduce(part_of(comm->rank()), out, count, type, op, comm, stream, part_of, true);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  const auto part_for = [&](int r) { return r == root ? place_of(in, 0) : nullptr; };
  return reduce(in, out, count, type, op, comm, stream, part_for, comm->rank() == root);
}

}  // extern "C"
