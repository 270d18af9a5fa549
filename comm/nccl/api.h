// The functions of NCCL and of the device's streams that the nccl backend uses. In a run they come from dlopen and LibTorch, in
// tests from fakes. NCCL is not linked, so all other backends work without it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace zt::comm {

// The first version with ncclMemAlloc, as NCCL's version code.
constexpr int kOldestNccl = 21900;
static_assert(NCCL_VERSION_CODE >= kOldestNccl, "comm/nccl needs the header of NCCL 2.19 or newer: set ZT_NCCL_INCLUDE");

struct NcclApi {
  std::function<decltype(ncclGetVersion)> get_version;
  std::function<decltype(ncclGetUniqueId)> get_unique_id;
  std::function<decltype(ncclCommInitRank)> comm_init_rank;
  std::function<decltype(ncclCommDestroy)> comm_destroy;
  std::function<decltype(ncclCommAbort)> comm_abort;
  std::function<decltype(ncclCommGetAsyncError)> comm_get_async_error;
  std::function<decltype(ncclGetErrorString)> get_error_string;
  std::function<decltype(ncclMemAlloc)> mem_alloc;
  std::function<decltype(ncclMemFree)> mem_free;
  std::function<decltype(ncclGroupStart)> group_start;
  std::function<decltype(ncclGroupEnd)> group_end;
  std::function<decltype(ncclAllReduce)> all_reduce;
  std::function<decltype(ncclReduceScatter)> reduce_scatter;
  std::function<decltype(ncclAllGather)> all_gather;
  std::function<decltype(ncclBroadcast)> broadcast;
  std::function<decltype(ncclReduce)> reduce;
  std::function<decltype(ncclSend)> send;
  std::function<decltype(ncclRecv)> recv;

  // Communicators and memory that are no longer used. To free them, CUDA waits for all work of the device. If a garbage
  // collection freed them within a step, that work could wait for a peer, and the peer for this rank. So free_retired frees them
  // later: before a communicator is made, and before memory is allocated. Thread-safe: ranks may be threads, with a GPU each.
  class Retired {
   public:
    struct OfDevice {
      std::vector<ncclComm_t> comms;
      std::vector<void*> memory;
    };
    void add(ncclComm_t comm, at::Device device);
    void add_memory(void* memory, at::Device device);
    OfDevice take(at::Device device);

   private:
    std::mutex mutex_;
    std::unordered_map<at::Device, OfDevice> by_device_;
  };
  std::shared_ptr<Retired> retired = std::make_shared<Retired>();
};

class StreamApi;
// Frees what has retired on the device of `streams`.
void free_retired(const NcclApi& api, const StreamApi& streams);

// Returns the functions of libnccl.so.2, or of the library that the variable ZT_NCCL names. The first call opens it. Throws Fault
// if the library is missing (with the loader's text) or too old.
const NcclApi& load_nccl();
// Throws Fault if the library behind `api` is older than kOldestNccl. Uses get_version and get_error_string only.
void check_nccl_version(const NcclApi& api);
// Throws Fault with NCCL's text unless `result` is ncclSuccess. `doing` names the function in the message.
void check_nccl(const NcclApi& api, ncclResult_t result, const char* doing);

// Streams and events of one device. `record` makes an event, and `destroy` frees it.
class StreamApi {
 public:
  virtual ~StreamApi() = default;
  virtual at::Device device() const = 0;
  virtual c10::Stream current() const = 0;
  // Makes `stream` the current stream of this thread, where ATen runs kernels and allocates memory. Returns the previous one.
  virtual c10::Stream exchange(const c10::Stream& stream) const = 0;
  virtual c10::Stream take_from_pool() const = 0;
  // Gives a stream without work back. A device executes few streams independently of each other; in one of more, work may wait
  // for that of an unrelated one, and two ranks for each other.
  virtual void give_back(const c10::Stream& stream) const = 0;
  virtual cudaStream_t native(const c10::Stream& stream) const = 0;
  virtual void* record(const c10::Stream& stream) const = 0;
  virtual void block(void* event, const c10::Stream& stream) const = 0;
  virtual bool query(void* event) const = 0;
  virtual void destroy(void* event) const noexcept = 0;
  // Keeps the allocator from reusing the tensor's memory before the present work on `stream` is done.
  virtual void keep_for(const c10::Stream& stream, const at::Tensor& tensor) const = 0;
  // Makes the host wait until all work on all streams of the device is done.
  virtual void synchronize() const = 0;
};

// Makes a stream the current one of this thread while the object lives.
class OnStream {
 public:
  OnStream(const StreamApi& streams, const c10::Stream& stream) : streams_(streams), before_(streams.exchange(stream)) {}
  ~OnStream() { streams_.exchange(before_); }
  OnStream(const OnStream&) = delete;

 private:
  const StreamApi& streams_;
  const c10::Stream before_;
};

// The place of a rank among those of its machine.
struct LocalRank {
  int index = 0, count = 1;
};
// Returns the index of the rank's GPU among those that its process sees: its place, or 0 if it sees one only, as with
// CUDA_VISIBLE_DEVICES set for each rank. Throws Misuse if there are several, but fewer than ranks.
int gpu_of(LocalRank here, int gpus);

// Makes the rank's GPU the current device of this thread, and returns its streams, through LibTorch. Throws Misuse as gpu_of, if
// LibTorch has no CUDA, or if there is no GPU.
std::shared_ptr<const StreamApi> cuda_streams(LocalRank here);

}  // namespace zt::comm
