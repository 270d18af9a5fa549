#include "nccl/fixed_order.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "core/segments.h"
#include "nccl/device_tree.h"

namespace zt::comm {

namespace {

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.view({tensor.numel()});
}

// One pair of tensors of an operation. Each rank reduces its segment of the input. There are W nearly equal segments, but in a
// reduce the root's segment is the whole input.
class Reduction {
 public:
  Reduction(const NcclSite& site, const Operation& operation, size_t index)
      : site_(site), operation_(operation), in_(flat(operation.in[index])), segments_{in_.numel(), site.group.size()} {
    if (operation.kind != CallKind::reduce || rank() == operation.peer) out_ = flat(operation.out[index]);
    if (!adds()) return;
    others_ = at::empty({site.group.size() - 1, size(rank())}, in_.options());
    site.streams.keep_for(site.stream, others_);  // the allocator may have assigned it to another stream
  }

  // Call it in an NCCL group. Receives the inputs of this rank's segment, and sends each rank the input of that rank's segment.
  void exchange() const {
    for (int r = 0; r < segments_.ranks; ++r) {
      if (r == rank()) continue;
      send(segment(in_, r), r);
      if (adds()) recv(of_other(r), r);
    }
  }

  void add() const {
    if (!adds()) return;
    std::vector<at::Tensor> sources;
    for (int r = 0; r < segments_.ranks; ++r) sources.push_back(r == rank() ? segment(in_, r) : of_other(r));
    device_tree(operation_.kind == CallKind::all_reduce ? segment(out_, rank()) : out_, sources, operation_.reduce);
  }

  // Call it in an NCCL group, for an all_reduce. Sends the result of this rank's segment to all ranks and receives theirs.
  void spread() const {
    const at::Tensor own = segment(out_, rank());
    if (segments_.count % segments_.ranks == 0)
      return site_.all_gather(out_.mutable_data_ptr(), own.const_data_ptr(), own.nbytes());
    for (int r = 0; r < segments_.ranks; ++r) {
      if (r == rank()) continue;
      send(own, r);
      recv(segment(out_, r), r);
    }
  }

 private:
  int rank() const { return site_.group.rank; }
  bool adds() const { return size(rank()) > 0; }
  int64_t begin(int owner) const { return operation_.kind == CallKind::reduce ? 0 : segments_.begin(owner); }
  int64_t size(int owner) const {
    if (operation_.kind != CallKind::reduce) return segments_.size(owner);
    return owner == operation_.peer ? segments_.count : 0;
  }
  at::Tensor segment(const at::Tensor& tensor, int owner) const { return tensor.narrow(0, begin(owner), size(owner)); }
  at::Tensor of_other(int r) const { return others_[r < rank() ? r : r - 1]; }

  // An empty part is not sent: the sender and the receiver both know that it is empty.
  void send(const at::Tensor& part, int peer) const {
    if (part.numel() > 0) site_.send(part.const_data_ptr(), part.nbytes(), peer);
  }
  void recv(const at::Tensor& part, int peer) const {
    if (part.numel() > 0) site_.recv(part.mutable_data_ptr(), part.nbytes(), peer);
  }

  const NcclSite& site_;
  const Operation& operation_;
  const at::Tensor in_;
  const Segments segments_;
  at::Tensor out_;     // undefined on ranks that are not the root of a reduce
  at::Tensor others_;  // [W - 1, size(rank())]: the other ranks' parts of this rank's segment
};

}  // namespace

void reduce_in_order(const NcclSite& site, const Operation& operation) {
  const at::AutoDispatchBelowADInplaceOrView as_kernels;  // autograd must not see these writes, as it does not see NCCL's
  const OnStream on_stream(site.streams, site.stream);
  std::vector<Reduction> reductions;
  for (size_t i = 0; i < operation.in.size(); ++i) reductions.emplace_back(site, operation, i);
  const bool alone = site.group.size() == 1;
  if (!alone) {
    site.together([&] {
      for (const auto& reduction : reductions) reduction.exchange();
    });
  }
  for (const auto& reduction : reductions) reduction.add();
  if (alone || operation.kind != CallKind::all_reduce) return;
  site.together([&] {
    for (const auto& reduction : reductions) reduction.spread();
  });
}

}  // namespace zt::comm
