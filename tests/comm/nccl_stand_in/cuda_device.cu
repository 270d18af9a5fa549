// The stand-in for NCCL on CUDA. Flags are waited for by the GPU's own stream memory operations, which do not occupy it.
#include <cuda.h>
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "device.h"
#include "fold.h"

namespace zt::test::stand_in {

namespace {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

// Returns a function of the driver, which is not linked.
template <class Function>
Function* driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state{};
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &state), name);
  if (!found) throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(found);
}

void check_driver(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + " fails with " + std::to_string(result));
}

template <class T>
__global__ void fold_all(Sum sum) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < sum.count) fold<T>(sum, i);
}

class CudaDevice : public Device {
 public:
  void* allocate(size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }
  void free(void* memory) override { check(cudaFree(memory), "cudaFree"); }
  void share(void* memory, size_t bytes) override {
    check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable), "cudaHostRegister");
  }
  void unshare(void* memory) override { check(cudaHostUnregister(memory), "cudaHostUnregister"); }
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
  void set(uint32_t* flag, uint32_t value, cudaStream_t stream) override {
    static auto* const write = driver<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32");
    check_driver(write(stream, address(flag), value, CU_STREAM_WRITE_VALUE_DEFAULT), "cuStreamWriteValue32");
  }
  void await(uint32_t* flag, uint32_t value, cudaStream_t stream) override {
    static auto* const wait = driver<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32");
    check_driver(wait(stream, address(flag), value, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  }
  void reduce(const Sum& sum, cudaStream_t stream) override {
    constexpr unsigned kThreads = 256;
    const auto blocks = static_cast<unsigned>((sum.count + kThreads - 1) / kThreads);
    with_type(sum.type, [&](auto value) { fold_all<decltype(value)><<<blocks, kThreads, 0, stream>>>(sum); });
    check(cudaGetLastError(), "a reduction");
  }

 private:
  static CUdeviceptr address(void* host) {
    void* device = nullptr;
    check(cudaHostGetDevicePointer(&device, host, 0), "cudaHostGetDevicePointer");
    return reinterpret_cast<CUdeviceptr>(device);
  }
};

}  // namespace

Device& device() {
  static CudaDevice* const made = new CudaDevice;  // lives until the process ends, as communicators may
  return *made;
}

}  // namespace zt::test::stand_in
