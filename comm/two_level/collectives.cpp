#include "two_level/collectives.h"

#include <ATen/ops/from_blob.h>

#include <cstring>

#include "core/bytes.h"
#include "core/reduce_tree.h"
#include "zt/base/float16.h"

namespace zt::comm {

at::Tensor flat_part(const at::Tensor& whole, int64_t begin, int64_t count) {
  char* data = bytes_of(whole) + static_cast<size_t>(begin) * whole.element_size();
  return at::from_blob(
      data, {count}, [whole](void*) {}, whole.options());
}

at::Tensor scratch(const LevelSite& site, int64_t count, at::ScalarType dtype) {
  char* data = site.scratch.get(static_cast<size_t>(count) * c10::elementSize(dtype));
  return at::from_blob(data, {count}, at::TensorOptions().dtype(dtype));
}

namespace {

template <class To, class From>
void convert(const at::Tensor& to, const at::Tensor& from) {
  To* out = to.mutable_data_ptr<To>();
  const From* in = from.const_data_ptr<From>();
  const int64_t count = from.numel();
  for (int64_t i = 0; i < count; ++i) out[i] = zt::narrow<To>(zt::widen(in[i]));
}

// Writes 16-bit floats to `wide` (float32, contiguous, as many elements), with the bits of reduce_tree.h. (at::Tensor::copy_
// makes bfloat16 NaNs 0xFFFF.)
void widen(const at::Tensor& wide, const at::Tensor& half) {
  if (half.scalar_type() == at::kHalf) convert<float, c10::Half>(wide, half);
  else convert<float, c10::BFloat16>(wide, half);
}

// Writes `wide` to `half`, rounded to nearest even.
void narrow(const at::Tensor& half, const at::Tensor& wide) {
  if (half.scalar_type() == at::kHalf) convert<c10::Half, float>(half, wide);
  else convert<c10::BFloat16, float>(half, wide);
}

// Returns whether partial results stay in fp32: sums and products of 16-bit floats are rounded once, at the end. Max and min are
// exact in any type.
bool has_wide_sums(const LevelSite& site, const Operation& operation) {
  const bool is_rounded = operation.reduce == ReduceOp::sum || operation.reduce == ReduceOp::product;
  return site.order == SumOrder::fixed && is_rounded && is_half_width(operation.in[0].scalar_type());
}

// Returns `whole` as one block per node.
std::vector<at::Tensor> by_node(const at::Tensor& whole, int nodes) {
  std::vector<at::Tensor> blocks;
  const int64_t block = whole.numel() / nodes;
  for (int q = 0; q < nodes; ++q) blocks.push_back(flat_part(whole, q * block, block));
  return blocks;
}

}  // namespace

// In the background, the step runs on the level's own thread, which waits without taking the core. Meanwhile this thread notices
// when the two-level communicator is closed, which the level does not know.
void LevelSite::step(const std::function<Work(Async)>& start) const {
  if (policy.style() == WaitPolicy::Style::caller) return start(Async::no).wait();
  policy.progressed();
  const Work work = start(Async::yes);
  // When the time is up, the step's own timeout is near, and its message names the missing ranks.
  while (!work.done() && policy.pause()) {
  }
  work.wait();
}

// The sum of a segment is computed at its final place in `out` and gathered from there, so both inside steps can be in place.
void all_reduce(const LevelSite& site, const Operation& operation) {
  const Levels& levels = site.levels;
  const at::Tensor &in = operation.in[0], &out = operation.out[0];
  const int64_t segment = in.numel() / site.places(), whole = segment * site.places(), rest = in.numel() - whole;
  const at::Tensor own = flat_part(out, site.place() * segment, segment);
  const bool is_wide = has_wide_sums(site, operation);
  const at::Tensor from = is_wide ? scratch(site, whole, at::kFloat) : flat_part(in, 0, whole);
  const at::Tensor sum = is_wide ? flat_part(from, site.place() * segment, segment) : own;
  if (is_wide) widen(from, flat_part(in, 0, whole));
  site.step([&](Async async) { return levels.inside->reduce_scatter(sum, from, operation.reduce, async); });
  site.step([&](Async async) { return levels.across->all_reduce(sum, sum, operation.reduce, async); });
  if (is_wide) narrow(own, sum);
  site.step([&](Async async) { return levels.inside->all_gather(flat_part(out, 0, whole), own, async); });
  if (rest == 0) return;
  site.step([&](Async async) {
    return levels.flat->all_reduce(flat_part(out, whole, rest), flat_part(in, whole, rest), operation.reduce, async);
  });
}

void reduce_scatter(const LevelSite& site, const Operation& operation) {
  const Levels& levels = site.levels;
  const at::Tensor &in = operation.in[0], &out = operation.out[0];
  const int nodes = site.nodes();
  const bool is_wide = has_wide_sums(site, operation);
  // Scratch: this node's sums for the ranks at this place on all nodes, followed by the input in fp32 if is_wide.
  const int64_t partial = out.numel() * nodes;
  const at::Tensor memory = scratch(site, partial + (is_wide ? in.numel() : 0), is_wide ? at::kFloat : in.scalar_type());
  const at::Tensor sums = flat_part(memory, 0, partial);
  const at::Tensor from = is_wide ? flat_part(memory, partial, in.numel()) : in;
  const at::Tensor result = is_wide ? flat_part(sums, site.node() * out.numel(), out.numel()) : out;
  if (is_wide) widen(from, in);
  site.step([&](Async async) {
    return levels.inside->reduce_scatter(by_node(sums, nodes), by_node(from, nodes), operation.reduce, async);
  });
  site.step([&](Async async) { return levels.across->reduce_scatter(result, sums, operation.reduce, async); });
  if (is_wide) narrow(out, result);
}

// Data from other nodes is copied to its final place in `out` before the ranks of the node share it. Then memory from `allocate`
// is read in place, and other memory is copied no more often than if it came from the scratch.
void all_gather(const LevelSite& site, const Operation& operation) {
  const Levels& levels = site.levels;
  const at::Tensor &in = operation.in[0], &out = operation.out[0];
  const int64_t count = in.numel();
  const at::Tensor arrived = scratch(site, count * site.nodes(), in.scalar_type());
  site.step([&](Async async) { return levels.across->all_gather(arrived, in, async); });
  std::vector<at::Tensor> own;
  for (int q = 0; q < site.nodes(); ++q) {
    own.push_back(flat_part(out, (q * site.places() + site.place()) * count, count));
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
      case CallKind::all_reduce:
        return flat->all_reduce(out, in, operation.reduce, async);
      case CallKind::reduce_scatter:
        return flat->reduce_scatter(out, in, operation.reduce, async);
      case CallKind::all_gather:
        return flat->all_gather(out, in, async);
      case CallKind::broadcast:
        return flat->broadcast(out, peer, async);
      case CallKind::reduce:
        return flat->reduce(out, in, peer, operation.reduce, async);
      case CallKind::gather:
        return flat->gather(out, in, peer, async);
      case CallKind::scatter:
        return flat->scatter(out, in, peer, async);
      case CallKind::send:
        return flat->send(in, peer, async);
      case CallKind::recv:
        return flat->recv(out, peer, async);
      case CallKind::barrier:
        flat->barrier();
        return Work();
      case CallKind::all_to_all:  // always runs on two levels
        break;
    }
    return Work();
  });
}

}  // namespace zt::comm
