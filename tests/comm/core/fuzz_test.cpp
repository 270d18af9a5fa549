// Runs 10,000 random collectives on random sub-meshes, with one seed on all ranks. Results must equal those of backend "local".
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "comm/support/ranks.h"
#include "mesh/mesh.h"
#include "support/exhaustive.h"
#include "support/spawn.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

const auto kOperations = static_cast<int>(test::number_of_cases(10000));
constexpr int kMostInFlight = 8;
constexpr int kPools = 2;
constexpr int64_t kPoolBytes = int64_t{1} << 21;  // bytes per window; a communicator has kPools windows

// Random numbers, the same on all ranks.
class Dice {
 public:
  int below(int n) { return static_cast<int>(engine_() % static_cast<uint32_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T>
  T pick(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }
  // Returns a tensor length: mostly small, sometimes long enough for the other algorithms of a backend.
  int64_t size() {
    const int kind = below(100);
    return kind < 5 ? 0 : kind < 60 ? below(40) : kind < 90 ? below(2000) : kind < 99 ? below(20000) : 60000 + below(20000);
  }

 private:
  std::mt19937 engine_{20240229};
};

uint64_t hash(const at::Tensor& tensor) {
  uint64_t value = 1469598103934665603U;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) value = (value ^ bytes[i]) * 1099511628211U;
  return value;
}

// Fills the input that world rank `rank` passes to operation `number`.
void fill(at::Tensor tensor, int number, int rank) {
  const auto start = static_cast<double>((number * 37 + rank * 101) % 503);
  const auto values = at::arange(tensor.numel(), at::kDouble).mul(7.3).add(start).remainder(97).sub(48).mul(0.37);
  tensor.copy_((tensor.scalar_type() == at::kBool ? values.gt(0) : values).view(tensor.sizes()));
}

struct Axis {
  std::shared_ptr<Communicator> comm;
  at::Tensor pools[kPools];  // windows: the first for inputs, the second for outputs
};

// Runs the operations on one rank and keeps one hash of the results per operation.
class RankRun {
 public:
  enum class Nodes : uint8_t { one, two };

  RankRun(const World& world, const std::string& backend, Nodes nodes) : world_(world) {
    MeshOptions options{.axes = {{"dp", 2}, {"tp", 2}}, .backend = backend};
    options.settings.timeout = std::chrono::seconds(60);
    if (backend == "two_level") {
      // Two nodes of two ranks: axis tp lies inside a node, axis dp has one rank per node.
      options.settings.ranks_per_node = 2;
      options.backends = {{"dp", "mpi"}, {"tp", "shm"}};
    }
    mesh_ = make_mesh(world, options);
    for (const auto& axis : {mesh_->axis("dp"), mesh_->axis("tp"), mesh_->world()}) add(axis->communicator);
    // On two nodes this axis would not keep the ranks of a node together, which two_level requires.
    if (nodes == Nodes::one) add(mesh_->join({"tp", "dp"})->communicator);
    add(mesh_->world()->communicator->duplicate("copy"));
  }

  std::vector<uint64_t> run() {
    for (int number = 0; number < kOperations; ++number) {
      step(number);
      if (static_cast<int>(pending_.size()) >= kMostInFlight) finish();
    }
    finish();
    return hashes_;
  }

 private:
  struct Pending {
    size_t number;
    Work work;
    std::vector<at::Tensor> results;
  };

  void add(std::shared_ptr<Communicator> comm) {
    Axis axis{std::move(comm), {}};
    for (auto& pool : axis.pools) pool = axis.comm->allocate({kPoolBytes}, at::kByte);
    axes_.push_back(axis);
  }

  // Returns a zeroed tensor: in a window if `is_window` and it fits, else on the heap. No operation in flight may use the window.
  at::Tensor make(const Axis& axis, bool is_window, int which, int64_t n, at::ScalarType dtype) {
    const int64_t bytes = n * static_cast<int64_t>(c10::elementSize(dtype));
    if (!is_window || bytes + 64 > kPoolBytes) return at::zeros({n}, dtype);
    const int64_t offset = 64 * (dice_.below(4));
    return bytes + offset > kPoolBytes ? at::zeros({n}, dtype) : axis.pools[which].narrow(0, offset, bytes).view(dtype).zero_();
  }

  void step(int number) {
    const Axis& axis = axes_[static_cast<size_t>(dice_.below(static_cast<int>(axes_.size())))];
    const auto kind = static_cast<CallKind>(dice_.below(kCallKinds));
    const auto dtype = dice_.pick(test::all_dtypes());
    const auto op = static_cast<ReduceOp>(dice_.below(4));
    const int64_t n = dice_.size();
    const bool is_window = dice_.one_in(2), is_in_place = dice_.one_in(3), is_list = dice_.one_in(6);
    const Async async = dice_.one_in(3) ? Async::yes : Async::no;
    const int root = dice_.below(axis.comm->size());
    // A window serves one operation at a time.
    if (is_window) finish();
    hashes_.push_back(0);
    if (is_list && (kind == CallKind::all_reduce || kind == CallKind::reduce_scatter || kind == CallKind::all_gather)) {
      return call_list(axis, kind, dtype, op, n, async, number);
    }
    call(axis, kind, dtype, op, n, is_window, is_in_place, async, root, number);
  }

  void keep(Work work, std::vector<at::Tensor> results) {
    pending_.push_back({hashes_.size() - 1, std::move(work), std::move(results)});
  }

  void call_list(const Axis& axis, CallKind kind, at::ScalarType dtype, ReduceOp op, int64_t n, Async async, int number) {
    const int64_t size = axis.comm->size();
    std::vector<at::Tensor> ins, outs;
    for (int i = 0; i < 3; ++i) {
      const int64_t part = n / (i + 1);
      ins.push_back(at::zeros({kind == CallKind::reduce_scatter ? part * size : part}, dtype));
      outs.push_back(at::zeros({kind == CallKind::all_gather ? part * size : part}, dtype));
      fill(ins.back(), number + i, world_.rank);
    }
    if (kind == CallKind::all_reduce) keep(axis.comm->all_reduce(ins, op, async), ins);
    else if (kind == CallKind::reduce_scatter) keep(axis.comm->reduce_scatter(outs, ins, op, async), outs);
    else keep(axis.comm->all_gather(outs, ins, async), outs);
  }

  void call(const Axis& axis, CallKind kind, at::ScalarType dtype, ReduceOp op, int64_t n, bool is_window, bool is_in_place,
            Async async, int root, int number) {
    Communicator& comm = *axis.comm;
    const int64_t size = comm.size();
    const bool is_root = comm.rank() == root, takes_parts = kind == CallKind::reduce_scatter || kind == CallKind::all_to_all;
    const bool gives_whole = kind == CallKind::all_gather || kind == CallKind::gather || kind == CallKind::all_to_all;
    at::Tensor in = make(axis, is_window, 0, takes_parts || kind == CallKind::scatter ? n * size : n, dtype);
    at::Tensor out = make(axis, is_window, 1, gives_whole ? n * size : n, dtype);
    if (is_in_place && (kind == CallKind::all_reduce || kind == CallKind::reduce)) out = in;
    if (is_in_place && kind == CallKind::reduce_scatter) out = in.narrow(0, comm.rank() * n, n);
    if (is_in_place && kind == CallKind::all_gather) in = out.narrow(0, comm.rank() * n, n);
    fill(in, number, world_.rank);
    const int next = static_cast<int>((comm.rank() + 1) % size), last = static_cast<int>((comm.rank() + size - 1) % size);
    switch (kind) {
      case CallKind::all_reduce:
        return keep(comm.all_reduce(out, in, op, async), {out});
      case CallKind::reduce_scatter:
        return keep(comm.reduce_scatter(out, in, op, async), {out});
      case CallKind::all_gather:
        return keep(comm.all_gather(out, in, async), {out});
      case CallKind::broadcast:
        return keep(comm.broadcast(in, root, async), {in});
      case CallKind::reduce:
        return keep(comm.reduce(is_root ? out : at::Tensor(), in, root, op, async),
                    is_root ? std::vector{out} : std::vector<at::Tensor>());
      case CallKind::gather:
        return keep(comm.gather(is_root ? out : at::Tensor(), in, root, async),
                    is_root ? std::vector{out} : std::vector<at::Tensor>());
      case CallKind::scatter:
        return keep(comm.scatter(out, is_root ? in : at::Tensor(), root, async), {out});
      case CallKind::all_to_all:
        return keep(comm.all_to_all(out, in, {}, {}, async), {out});
      case CallKind::send:
      case CallKind::recv: {
        // Around the ring: the root receives first.
        if (!is_root) comm.send(in, next, async).wait();
        comm.recv(out, last, async).wait();
        if (is_root) comm.send(in, next, async).wait();
        return keep(Work(), {out});
      }
      case CallKind::barrier:
        return comm.barrier();
    }
  }

  void finish() {
    std::reverse(pending_.begin(), pending_.end());
    for (const Pending& pending : pending_) {
      pending.work.wait();
      for (const auto& result : pending.results) hashes_[pending.number] = hashes_[pending.number] * 31 + hash(result);
    }
    pending_.clear();
  }

  const World world_;
  Dice dice_;
  std::shared_ptr<Mesh> mesh_;
  std::vector<Axis> axes_;
  std::vector<Pending> pending_;
  std::vector<uint64_t> hashes_;
};

TEST(Fuzz, GivesWhatLocalGives) {
  const World world = World::from_environment();
  ASSERT_EQ(world.size, 4) << "run it under mpirun -n 4";
  const char* named = std::getenv("ZT_TEST_BACKEND");
  const std::string backend = named ? named : "mpi";
  const auto nodes = backend == "two_level" ? RankRun::Nodes::two : RankRun::Nodes::one;
  std::vector<uint64_t> expected;
  test::spawn(4, [&](const World& threads) {
    auto hashes = RankRun(threads, "local", nodes).run();
    if (threads.rank == world.rank) expected = std::move(hashes);
  });
  const auto hashes = RankRun(world, backend, nodes).run();
  ASSERT_EQ(hashes.size(), static_cast<size_t>(kOperations));
  for (size_t i = 0; i < hashes.size(); ++i) ASSERT_EQ(hashes[i], expected[i]) << "operation " << i;
  const std::set<uint64_t> distinct(hashes.begin(), hashes.end());
  EXPECT_GT(distinct.size(), 7000U) << "too many operations have the same result";
}

}  // namespace

}  // namespace zt::comm
