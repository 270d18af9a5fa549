#include "nccl/api.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <mutex>

#include "zt/base/error.h"
#include "zt/base/machine.h"

namespace zt::comm {

namespace {

const char* library_name() {
  const char* other = environment("ZT_NCCL");
  return other ? other : "libnccl.so.2";
}

template <class Signature>
void find(void* library, const char* name, std::function<Signature>& function) {
  auto* symbol = reinterpret_cast<Signature*>(dlsym(library, name));
  if (!symbol) fault("{} has no function {}: NCCL 2.19 or newer is needed", library_name(), name);
  function = symbol;
}

// Opens NCCL once. It is never closed, because its streams and threads outlive all communicators.
void* nccl_library() {
  static const auto [library, error] = [] {
    void* opened = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
    return std::pair(opened, std::string(opened ? "" : dlerror()));
  }();
  if (!library) fault("backend 'nccl' needs NCCL, which cannot be loaded: {}", error);
  return library;
}

NcclApi open_nccl() {
  void* library = nccl_library();
  NcclApi api;
  find(library, "ncclGetErrorString", api.get_error_string);
  find(library, "ncclGetVersion", api.get_version);
  check_nccl_version(api);
  find(library, "ncclGetUniqueId", api.get_unique_id);
  find(library, "ncclCommInitRank", api.comm_init_rank);
  find(library, "ncclCommDestroy", api.comm_destroy);
  find(library, "ncclCommAbort", api.comm_abort);
  find(library, "ncclCommGetAsyncError", api.comm_get_async_error);
  find(library, "ncclMemAlloc", api.mem_alloc);
  find(library, "ncclMemFree", api.mem_free);
  find(library, "ncclGroupStart", api.group_start);
  find(library, "ncclGroupEnd", api.group_end);
  find(library, "ncclAllReduce", api.all_reduce);
  find(library, "ncclReduceScatter", api.reduce_scatter);
  find(library, "ncclAllGather", api.all_gather);
  find(library, "ncclBroadcast", api.broadcast);
  find(library, "ncclReduce", api.reduce);
  find(library, "ncclSend", api.send);
  find(library, "ncclRecv", api.recv);
  return api;
}

// Returns "2.18.3". Until 2.8 the code was major * 1000 + minor * 100 + patch, since then major * 10000 + minor * 100 + patch.
std::string version_text(int code) {
  const int major = code < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", code / major, code % major / 100, code % 100);
}

// The host opens LibTorch's CUDA library before the script. This opens it elsewhere, or says why it could not be opened.
void load_torch_cuda() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) return;
  misuse(
      "backend 'nccl' needs LibTorch's CUDA library, which cannot be loaded: {}. scripts/setup.sh installs it on a machine with a GPU; "
      "'mpi' and 'local' work on host memory",
      dlerror());
}

// Uses LibTorch's device-independent interface to streams, so that CUDA is not linked.
class CudaStreams : public StreamApi {
 public:
  explicit CudaStreams(LocalRank here)
      : guard_(at::kCUDA), device_(at::kCUDA, static_cast<c10::DeviceIndex>(gpu_of(here, guard_.deviceCount()))) {
    guard_.setDevice(device_);
  }
  at::Device device() const override { return device_; }
  c10::Stream current() const override { return guard_.getStream(device_); }
  c10::Stream exchange(const c10::Stream& stream) const override { return guard_.exchangeStream(stream); }
  c10::Stream take_from_pool() const override {
    const std::lock_guard lock(mutex_);
    const auto free = std::ranges::find(returned_, device_, &c10::Stream::device);
    if (free == returned_.end()) return guard_.getStreamFromGlobalPool(device_, true);
    const c10::Stream stream = *free;
    returned_.erase(free);
    return stream;
  }
  void give_back(const c10::Stream& stream) const override {
    const std::lock_guard lock(mutex_);
    returned_.push_back(stream);
  }
  cudaStream_t native(const c10::Stream& stream) const override {
    return static_cast<cudaStream_t>(guard_.getStreamNativeHandle(stream));
  }
  void* record(const c10::Stream& stream) const override {
    void* event = nullptr;
    guard_.record(&event, stream, device_.index(), c10::EventFlag::BACKEND_DEFAULT);
    return event;
  }
  void block(void* event, const c10::Stream& stream) const override { guard_.block(event, stream); }
  bool query(void* event) const override { return guard_.queryEvent(event); }
  void destroy(void* event) const noexcept override { guard_.destroyEvent(event, device_.index()); }
  void keep_for(const c10::Stream& stream, const at::Tensor& tensor) const override {
    guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
  void synchronize() const override { guard_.synchronizeDevice(device_.index()); }

 private:
  inline static std::mutex mutex_;
  inline static std::vector<c10::Stream> returned_;
  c10::impl::VirtualGuardImpl guard_;
  at::Device device_;
};

}  // namespace

void check_nccl(const NcclApi& api, ncclResult_t result, const char* doing) {
  if (result != ncclSuccess)
    fault("NCCL failed in {}: {} (set NCCL_DEBUG=INFO for details)", doing, api.get_error_string(result));
}

void check_nccl_version(const NcclApi& api) {
  int version = 0;
  check_nccl(api, api.get_version(&version), "get_version");
  if (version >= kOldestNccl) return;
  fault(
      "NCCL {} is loaded ({}), 2.19 or newer is needed to allocate memory: install a newer one, or "
      "give its path in the variable ZT_NCCL",
      version_text(version), library_name());
}

const NcclApi& load_nccl() {
  static const NcclApi api = open_nccl();
  return api;
}

void NcclApi::Retired::add(ncclComm_t comm, at::Device device) {
  const std::lock_guard lock(mutex_);
  by_device_[device].comms.push_back(comm);
}

void NcclApi::Retired::add_memory(void* memory, at::Device device) {
  const std::lock_guard lock(mutex_);
  by_device_[device].memory.push_back(memory);
}

NcclApi::Retired::OfDevice NcclApi::Retired::take(at::Device device) {
  const std::lock_guard lock(mutex_);
  return std::exchange(by_device_[device], {});
}

void free_retired(const NcclApi& api, const StreamApi& streams) {
  const auto retired = api.retired->take(streams.device());
  for (const ncclComm_t comm : retired.comms) api.comm_destroy(comm);
  if (retired.memory.empty()) return;
  // Unlike LibTorch's allocator, NCCL gives the memory back to the driver at once, even if the device still uses it.
  streams.synchronize();
  for (void* memory : retired.memory) api.mem_free(memory);
}

int gpu_of(LocalRank here, int gpus) {
  if (gpus == 1) return 0;
  if (here.count > gpus)
    misuse("backend 'nccl' needs a GPU for each of the {} ranks of a machine, and this one has {}: start fewer ranks on it",
           here.count, gpus);
  return here.index;
}

std::shared_ptr<const StreamApi> cuda_streams(LocalRank here) {
  // A stand-in for NCCL without a GPU brings its own streams (tests/comm/nccl_stand_in).
  if (auto* give = reinterpret_cast<void (*)(std::shared_ptr<const StreamApi>*)>(dlsym(nccl_library(), "zt_nccl_streams"))) {
    std::shared_ptr<const StreamApi> streams;
    give(&streams);
    return streams;
  }
  load_torch_cuda();
  if (!at::hasCUDA()) misuse("backend 'nccl' needs a GPU, and this run has none: 'mpi' and 'local' work on host memory");
  return std::make_shared<CudaStreams>(here);
}

}  // namespace zt::comm
