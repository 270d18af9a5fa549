// Streams without a GPU: each stream of the pool is a thread that does its work in order, and the current stream is the calling
// thread, which does its work at once.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl/api.h"

namespace zt::test::stand_in {

// The thread of a stream. Lives until the process ends.
class Worker {
 public:
  Worker();
  // Waits for the task, too, if the worker's stream is the current one: ATen's kernels, which may follow, run at once.
  void add(std::function<void()> task);
  // Keeps the tensor until the next task that `add_last_use` adds is done.
  void keep(const at::Tensor& tensor);
  void add_last_use(std::function<void()> task);
  // Waits until all tasks are done.
  void drain();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<at::Tensor> kept_;
  bool is_busy_ = false;
};

class HostStreams : public comm::StreamApi {
 public:
  at::Device device() const override { return at::kCPU; }
  c10::Stream current() const override;
  c10::Stream exchange(const c10::Stream& stream) const override;
  c10::Stream take_from_pool() const override;
  void give_back(const c10::Stream& stream) const override;
  cudaStream_t native(const c10::Stream& stream) const override;
  void* record(const c10::Stream& stream) const override;
  void block(void* event, const c10::Stream& stream) const override;
  bool query(void* event) const override;
  void destroy(void* event) const noexcept override;
  void keep_for(const c10::Stream& stream, const at::Tensor& tensor) const override;
  void synchronize() const override;
};

}  // namespace zt::test::stand_in

// The toolkit takes streams from this function of the library that ZT_NCCL names (comm/nccl/api.cpp).
extern "C" void zt_nccl_streams(std::shared_ptr<const zt::comm::StreamApi>* streams);
