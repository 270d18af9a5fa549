#include "two_level/collectives.h"

#include <ATen/ops/from_blob.h>

#include <cstring>

#include "core/reduce_tree.h"
#include "two_level/halves.h"

namespace zt::comm {

namespace {

// Elements [begin, begin + count) as a flat tensor. It holds `whole`: a step that is given up may still write to it.
at::Tensor piece(const at::Tensor& whole, int64_t begin, int64_t count) {
  char* data = bytes_of(whole) + static_cast<size_t>(begin) * whole.element_size();
  return at::from_blob(
      data, {count}, [whole](void*) {}, whole.options());
}

at::Tensor flattened(const at::Tensor& tensor) {
  return piece(tensor, 0, tensor.numel());
}

// The last scratch is gone. Kept for ever by the backend when an operation fails, as others may still read it.
at::Tensor scratch(const LevelSite& site, int64_t count, at::ScalarType dtype) {
  char* data = site.scratch.get(static_cast<size_t>(count) * c10::elementSize(dtype));
  return at::from_blob(data, {count}, at::TensorOptions().dtype(dtype));
}

// Partial sums of 16-bit floats have to stay in fp32 to be rounded once, at the end. Max and min are exact in any type.
bool has_wide_sums(const LevelSite& site, const Operation& operation) {
  const bool is_rounded = operation.reduce == ReduceOp::sum || operation.reduce == ReduceOp::product;
  return site.order == SumOrder::fixed && is_rounded && is_half_width(operation.in[0].scalar_type());
}

// `whole` as one block a node.
std::vector<at::Tensor> by_node(const at::Tensor& whole, int nodes) {
  std::vector<at::Tensor> blocks;
  const int64_t block = whole.numel() / nodes;
  for (int q = 0; q < nodes; ++q) blocks.push_back(piece(whole, q * block, block));
  return blocks;
}

}  // namespace

// While the owner computes, the step is given to the communicator's own thread: that one waits without taking the core, and
// this one sees when the two-level communicator is closed, which the level does not know.
void LevelSite::step(const std::function<Work(Async)>& start) const {
  if (policy.style() == WaitPolicy::Style::caller) return start(Async::no).wait();
  policy.progressed();
  const Work work = start(Async::yes);
  // When the time is up, the step's own time-out is near, and its message says who is missing.
  while (!work.done() && policy.pause()) {
  }
  work.wait();
}

// The sum of a segment is made where it belongs in `out`, and handed out from there: both inside steps are in place.
void all_reduce(const LevelSite& site, const Operation& operation) {
  const Levels& levels = site.levels;
  const at::Tensor &in = operation.in[0], &out = operation.out[0];
  const int64_t segment = in.numel() / site.places(), whole = segment * site.places(), rest = in.numel() - whole;
  const at::Tensor own = piece(out, site.place() * segment, segment);
  const bool is_wide = has_wide_sums(site, operation);
  const at::Tensor from = is_wide ? scratch(site, whole, at::kFloat) : piece(in, 0, whole);
  const at::Tensor sum = is_wide ? piece(from, site.place() * segment, segment) : own;
  if (is_wide) widen(from, piece(in, 0, whole));
  site.step([&](Async async) { return levels.inside->reduce_scatter(sum, from, operation.reduce, async); });
  site.step([&](Async async) { return levels.across->all_reduce(sum, sum, operation.reduce, async); });
  if (is_wide) narrow(own, sum);
  site.step([&](Async async) { return levels.inside->all_gather(piece(out, 0, whole), own, async); });
  if (rest == 0) return;
  site.step([&](Async async) {
    return levels.flat->all_reduce(piece(out, whole, rest), piece(in, whole, rest), operation.reduce, async);
  });
}

void reduce_scatter(const LevelSite& site, const Operation& operation) {
  const Levels& levels = site.levels;
  const at::Tensor &in = operation.in[0], &out = operation.out[0];
  const int nodes = site.nodes();
  const bool is_wide = has_wide_sums(site, operation);
  // The node's sums for this place on each node, and behind them the input in fp32.
  const int64_t partial = out.numel() * nodes;
  const at::Tensor memory = scratch(site, partial + (is_wide ? in.numel() : 0), is_wide ? at::kFloat : in.scalar_type());
  const at::Tensor sums = piece(memory, 0, partial);
  const at::Tensor from = is_wide ? piece(memory, partial, in.numel()) : in;
  const at::Tensor result = is_wide ? piece(sums, site.node() * out.numel(), out.numel()) : out;
  if (is_wide) widen(from, in);
  site.step([&](Async async) {
    return levels.inside->reduce_scatter(by_node(sums, nodes), by_node(from, nodes), operation.reduce, async);
  });
  site.step([&](Async async) { return levels.across->reduce_scatter(result, sums, operation.reduce, async); });
  if (is_wide) narrow(out, result);
}

// What came for this place is put where it belongs in `out` before the node's ranks share it: memory from `allocate` is then read
// where it is, and other memory is copied no more often than from the scratch.
void all_gather(const LevelSite& site, const Operation& operation) {
  const Levels& levels = site.levels;
  const at::Tensor &in = operation.in[0], &out = operation.out[0];
  const int64_t count = in.numel();
  const at::Tensor arrived = scratch(site, count * site.nodes(), in.scalar_type());
  site.step([&](Async async) { return levels.across->all_gather(arrived, in, async); });
  std::vector<at::Tensor> own;
  for (int q = 0; q < site.nodes(); ++q) {
    own.push_back(piece(out, (q * site.places() + site.place()) * count, count));
    std::memcpy(bytes_of(own.back()), bytes_of(arrived) + static_cast<size_t>(q) * in.nbytes(), in.nbytes());
  }
  site.step([&](Async async) { return levels.inside->all_gather(by_node(out, site.nodes()), own, async); });
}

void run_flat(const LevelSite& site, const Operation& operation) {
  const at::Tensor in = operation.in.empty() ? at::Tensor() : operation.in[0];
  const at::Tensor out = operation.out.empty() ? at::Tensor() : operation.out[0];
  const int peer = operation.peer;
  site.step([&, flat = site.levels.flat.get()](Async async) -> Work {
    switch (operation.kind) {
      case Kind::all_reduce:
        return flat->all_reduce(out, in, operation.reduce, async);
      case Kind::reduce_scatter:
        return flat->reduce_scatter(out, in, operation.reduce, async);
      case Kind::all_gather:
        return flat->all_gather(out, in, async);
      case Kind::broadcast:
        return flat->broadcast(out, peer, async);
      case Kind::reduce:
        return flat->reduce(out, in, peer, operation.reduce, async);
      case Kind::gather:
        return flat->gather(out, in, peer, async);
      case Kind::scatter:
        return flat->scatter(out, in, peer, async);
      case Kind::all_to_all:
        // The splits of an Operation count elements, those of a call rows.
        return flat->all_to_all(flattened(out), flattened(in), operation.out_splits, operation.in_splits, async);
      case Kind::send:
        return flat->send(in, peer, async);
      case Kind::recv:
        return flat->recv(out, peer, async);
      case Kind::barrier:
        flat->barrier();
        return Work();
    }
    return Work();
  });
}

}  // namespace zt::comm
