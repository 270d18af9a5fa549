// The nccl backend over the fakes, mostly as rank 1 of 3, with the log of its calls. Also tensors whose sums depend on the order.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include <cstring>

#include "backend/checked.h"
#include "core/reduce_tree.h"
#include "nccl/nccl_backend.h"
#include "nccl_fake.h"

namespace zt::comm::fake {

inline const Group kThree{"dp", 1, {0, 1, 2}};

// A backend whose ring can be read.
struct RecordedBackend {
  explicit RecordedBackend(std::unique_ptr<Backend> made) : backend(std::move(made)) { backend->record_in(ring); }
  Work all_reduce(const at::Tensor& tensor) {
    Operation operation{.kind = CallKind::all_reduce, .out = {tensor}, .in = {tensor}};
    operation.call = call_of(operation);
    operation.number = operation.turn = ring->add(operation.call).number;
    return backend->submit(std::move(operation), Async::yes);
  }
  CallRecord record(size_t number) const { return memory->records[number].load(); }
  CallStage stage(size_t number) const { return record(number).stage; }

  std::shared_ptr<RingMemory> memory = std::make_shared<RingMemory>();
  std::shared_ptr<Ring> ring = std::make_shared<Ring>(*memory, memory, kThree, "nccl", 0);
  std::unique_ptr<Backend> backend;
};

class NcclTest : public testing::Test {
 protected:
  std::shared_ptr<Communicator> make_host(const Group& group) { return std::make_shared<Host>(group, comparisons); }
  std::unique_ptr<Backend> make_backend(SumOrder order = SumOrder::any, const Group& group = kThree) {
    return make_nccl_backend(make_host(group), group, order, nccl.api, streams);
  }
  std::unique_ptr<Communicator> make(SumOrder order = SumOrder::any, const Group& group = kThree) {
    auto comm = std::make_unique<CheckedCommunicator>(make_backend(order, group));
    EXPECT_EQ(log.take(), Lines{fmt::format("init {} of {}", group.rank, group.size())});
    return comm;
  }
  // Returns the log lines of NCCL's calls only.
  Lines calls() {
    auto lines = log.take();
    std::erase_if(lines, [](const std::string& line) {
      return line.starts_with("record") || line.starts_with("block") || line.starts_with("keep") || line.starts_with("current");
    });
    return lines;
  }

  Log log;
  Nccl nccl{log};
  std::shared_ptr<Streams> streams = std::make_shared<Streams>(log);
  Comparisons comparisons;
};

// Returns the input of a rank, [n]. Sums of three inputs round differently in another order.
inline at::Tensor source(int rank, int64_t n, at::ScalarType dtype) {
  const auto waves = at::arange(n, at::kDouble).add(17 * rank).sin().mul(100);
  if (dtype == at::kBool) return waves.gt(0);
  return at::isIntegralType(dtype, false) ? waves.abs().to(dtype) : waves.to(dtype);
}

inline std::vector<at::Tensor> sources_of(int ranks, int64_t n, at::ScalarType dtype) {
  std::vector<at::Tensor> sources;
  for (int r = 0; r < ranks; ++r) sources.push_back(source(r, n, dtype));
  return sources;
}

inline at::Tensor reduce_sources(const std::vector<at::Tensor>& sources, ReduceOp op = ReduceOp::sum) {
  at::Tensor out = at::empty_like(sources[0]);
  std::vector<const void*> data;
  for (const auto& tensor : sources) data.push_back(tensor.const_data_ptr());
  reduce_tree(out.scalar_type(), op, out.mutable_data_ptr(), data, out.numel());
  return out;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace zt::comm::fake
