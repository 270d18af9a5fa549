// A fake NCCL, fake streams and a fake host communicator for tests of the nccl backend. They log their calls, and deliver data
// where a test says what the peers send. No GPU, no threads.
#pragma once

#include <ATen/ops/from_blob.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/checked.h"
#include "nccl/api.h"
#include "null/null_backend.h"
#include "zt/base/error.h"

namespace zt::comm::fake {

using Lines = std::vector<std::string>;

struct Log {
  Lines lines;
  void add(std::string line) { lines.push_back(std::move(line)); }
  Lines take() { return std::exchange(lines, {}); }
};

// Events are numbered. Events from number `complete` on are not complete.
struct Streams : StreamApi {
  explicit Streams(Log& log) : log(log) {}
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, at::kCPU, id); }
  at::Device device() const override { return at::kCPU; }
  c10::Stream current() const override { return stream(now); }
  c10::Stream exchange(const c10::Stream& to) const override {
    log.add(fmt::format("current {}", to.id()));
    return stream(std::exchange(now, to.id()));
  }
  c10::Stream take_from_pool() const override { return stream(7); }
  void give_back(const c10::Stream&) const override {}
  cudaStream_t native(const c10::Stream& stream) const override { return reinterpret_cast<cudaStream_t>(stream.id()); }
  void* record(const c10::Stream& stream) const override {
    log.add(fmt::format("record {}", stream.id()));
    ++alive;
    return new int(made++);
  }
  void block(void*, const c10::Stream& stream) const override { log.add(fmt::format("block {}", stream.id())); }
  bool query(void* event) const override { return *static_cast<int*>(event) < complete; }
  void destroy(void* event) const noexcept override {
    delete static_cast<int*>(event);
    --alive;
  }
  void keep_for(const c10::Stream& stream, const at::Tensor&) const override { log.add(fmt::format("keep {}", stream.id())); }
  void synchronize() const override { log.add("synchronize"); }
  void stop() { complete = made; }
  void go_on() { complete = INT_MAX; }

  Log& log;
  mutable c10::StreamId now = 0;
  mutable int made = 0, alive = 0;
  int complete = INT_MAX;
};

// Fills `api`, which must not be used longer than the object lives.
class Nccl {
 public:
  explicit Nccl(Log& log) : log_(log) {
    fake_lifecycle();
    fake_operations();
  }
  Nccl(const Nccl&) = delete;

  NcclApi api;
  std::string refused;  // calls whose log line starts with this text fail
  ncclResult_t async_error = ncclSuccess;
  at::Tensor shown;                                // addresses in this tensor are logged, as offsets
  std::map<int, std::deque<at::Tensor>> arriving;  // messages by sender, in order; without one, recv leaves the memory as it is

 private:
  ncclResult_t said(std::string line) {
    const bool fails = !refused.empty() && line.starts_with(refused);
    log_.add(std::move(line));
    return fails ? ncclSystemError : ncclSuccess;
  }
  template <class... Args>
  ncclResult_t say(fmt::format_string<Args...> format, Args&&... args) {
    return said(fmt::format(format, std::forward<Args>(args)...));
  }
  // A handle is the rank in the communicator, plus 1.
  static ncclComm_t handle_of(int rank) { return reinterpret_cast<ncclComm_t>(intptr_t{rank} + 1); }
  std::string place(const void* data) const {
    if (!shown.defined()) return "";
    const auto offset = reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(shown.const_data_ptr());
    return offset < shown.nbytes() ? fmt::format(" at {}", offset) : "";
  }
  // Delivers a message that a rank sends to itself.
  void leave(const void* data, size_t bytes, int peer, ncclComm_t comm) {
    if (comm != handle_of(peer)) return;
    arriving[peer].push_back(at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)}, at::kByte).clone());
  }
  void arrive(void* data, size_t bytes, int peer) {
    auto& messages = arriving[peer];
    if (messages.empty()) return;
    if (messages.front().nbytes() != bytes) fault("{} bytes arrive from rank {}, not {}", messages.front().nbytes(), peer, bytes);
    std::memcpy(data, messages.front().const_data_ptr(), bytes);
    messages.pop_front();
  }

  void fake_lifecycle() {
    api.get_unique_id = [](auto) { return ncclSuccess; };
    api.comm_init_rank = [this](ncclComm_t* comm, int size, ncclUniqueId, int rank) {
      *comm = handle_of(rank);
      return say("init {} of {}", rank, size);
    };
    api.comm_destroy = [this](auto) { return said("destroy"); };
    api.comm_abort = [this](auto) { return said("abort"); };
    api.comm_get_async_error = [this](ncclComm_t, ncclResult_t* state) {
      *state = async_error;
      return ncclSuccess;
    };
    api.get_error_string = [](auto) { return "a peer left"; };
    api.mem_alloc = [this](void** memory, size_t bytes) {
      if (say("alloc {}", bytes) != ncclSuccess) return ncclSystemError;
      *memory = std::memset(std::malloc(bytes), 0xFF, bytes);
      return ncclSuccess;
    };
    api.mem_free = [this](void* memory) {
      std::free(memory);
      return said("free");
    };
  }

  void fake_operations() {
    api.group_start = [this] { return said("("); };
    api.group_end = [this] { return said(")"); };
    api.all_reduce = [this](auto, auto, size_t n, ncclDataType_t type, ncclRedOp_t op, auto, cudaStream_t stream) {
      return say("all_reduce {} type {} op {} stream {}", n, int{type}, int{op}, reinterpret_cast<intptr_t>(stream));
    };
    api.reduce_scatter = [this](auto, auto, size_t n, auto...) { return say("reduce_scatter {}", n); };
    api.reduce = [this](auto, void* to, size_t n, auto, auto, int root, auto...) {
      return say("reduce {} to {}{}", n, root, to ? "" : " no out");
    };
    api.all_gather = [this](const void* in, auto, size_t n, auto...) { return say("all_gather {}{}", n, place(in)); };
    api.broadcast = [this](auto, auto, size_t n, auto, int root, auto...) { return say("broadcast {} from {}", n, root); };
    api.send = [this](const void* data, size_t n, auto, int peer, ncclComm_t comm, auto) {
      leave(data, n, peer, comm);
      return say("send {}{} to {}", n, place(data), peer);
    };
    api.recv = [this](void* data, size_t n, auto, int peer, auto...) {
      arrive(data, n, peer);
      return say("recv {}{} from {}", n, place(data), peer);
    };
  }

  Log& log_;
};

struct Comparisons {
  int made = 0;
  std::optional<Call> of_rank_2;  // replaces the call of rank 2
};

// The fake host communicator. Its all_gather on the null backend gives this rank's own part for every rank.
class Host : public CheckedCommunicator {
 public:
  Host(const Group& group, Comparisons& comparisons)
      : CheckedCommunicator(make_null_backend(group)), group_(group), comparisons_(comparisons) {}
  std::shared_ptr<Communicator> duplicate(const std::string& name) override {
    return std::make_shared<Host>(group_.renamed(name), comparisons_);
  }
  using CheckedCommunicator::all_gather;
  Work all_gather(at::Tensor out, at::Tensor in, Async async) override {
    ++comparisons_.made;
    Work work = CheckedCommunicator::all_gather(out, in, async);
    if (const auto& other = comparisons_.of_rank_2)
      std::memcpy(static_cast<char*>(out.mutable_data_ptr()) + 2 * sizeof(Call), &*other, sizeof(Call));
    return work;
  }

 private:
  const Group group_;
  Comparisons& comparisons_;
};

}  // namespace zt::comm::fake
