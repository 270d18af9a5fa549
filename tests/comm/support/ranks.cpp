#include "ranks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "core/group.h"
#include "mesh/make_backend.h"
#include "support/spawn.h"
#include "zt/base/tensor.h"

namespace zt::test {

namespace {

// Keeps tensors that tests use again: making a million elements anew would take most of a test's time.
template <class Key>
class Cache {
 public:
  at::Tensor get(const Key& key, const std::function<at::Tensor()>& make) {
    const std::lock_guard lock(mutex_);
    auto& tensor = tensors_[key];
    if (!tensor.defined()) tensor = make();
    return tensor;
  }

 private:
  std::mutex mutex_;
  std::map<Key, at::Tensor> tensors_;
};

// Contributions repeat every 3 elements, so a block of whole periods is made and then repeated.
constexpr int64_t kPeriods = 3 * 1024;

at::Tensor repeated(const at::Tensor& block, int64_t n) {
  return block.repeat({n / kPeriods + 1}).narrow(0, 0, n);
}

at::Tensor contribution_block(int rank, at::ScalarType dtype) {
  const auto place = at::arange(kPeriods, at::kLong).add(rank).remainder(3);
  return dtype == at::kBool ? place.eq(0) : place.add(1).to(dtype);
}

at::Tensor reduced_block(int size, at::ScalarType dtype, ReduceOp op) {
  auto result = contribution_block(0, dtype).to(at::kDouble);
  for (int r = 1; r < size; ++r) {
    const auto next = contribution_block(r, dtype).to(at::kDouble);
    if (op == ReduceOp::sum) result = result.add(next);
    if (op == ReduceOp::product) result = result.mul(next);
    if (op == ReduceOp::max) result = result.max(next);
    if (op == ReduceOp::min) result = result.min(next);
  }
  return dtype == at::kBool ? result.ne(0) : result.to(dtype);
}

}  // namespace

std::shared_ptr<Communicator> world_communicator(const World& world) {
  const char* named = std::getenv("ZT_TEST_BACKEND");
  const std::string backend = named ? named : world.launch == Launch::mpi ? "mpi" : "local";
  return comm::make_communicator(world, backend, comm::whole_group(world, "dp"), {.timeout = std::chrono::seconds(60)});
}

void on_worlds(const std::function<void(const World&)>& body) {
  const World world = World::from_environment();
  if (world.launch == Launch::mpi) return body(world);
  for (int size = 1; size <= 4; ++size) spawn(size, body);
}

void on_ranks(const std::function<void(Communicator&)>& body) {
  on_worlds([&](const World& world) { body(*world_communicator(world)); });
}

const std::vector<at::ScalarType>& all_dtypes() {
  static const std::vector<at::ScalarType> dtypes{at::kFloat,  at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                                                  at::kChar,   at::kShort,  at::kInt,  at::kLong,     at::kUInt16,
                                                  at::kUInt32, at::kUInt64, at::kBool};
  return dtypes;
}

at::Tensor contribution(int rank, int64_t n, at::ScalarType dtype) {
  static Cache<std::tuple<int, int64_t, at::ScalarType>> cache;
  return cache.get({rank % 3, n, dtype}, [&] { return repeated(contribution_block(rank % 3, dtype), n); });
}

at::Tensor reduced(int size, int64_t n, at::ScalarType dtype, ReduceOp op) {
  static Cache<std::tuple<int, int64_t, at::ScalarType, ReduceOp>> cache;
  return cache.get({size, n, dtype, op}, [&] { return repeated(reduced_block(size, dtype, op), n); });
}

at::Tensor part_of(const at::Tensor& tensor, int part, int parts) {
  const int64_t length = tensor.numel() / parts;
  return tensor.narrow(0, part * length, length);
}

std::string label(const Communicator& comm, at::ScalarType dtype, int64_t n) {
  return fmt::format("{} n={} rank {} of {} on {}", dtype_name(dtype), n, comm.rank(), comm.size(), comm.backend());
}

}  // namespace zt::test
