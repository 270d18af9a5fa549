#include "whole_moves.h"

#include <ATen/ops/zeros.h>

#include "train/store/whole_tensors.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/gemm/packed_stack.h"

namespace zt {

namespace {

// The sums are those of ckpt.merge_lora, bit for bit.
at::Tensor with_product(const at::Tensor& sums, const AdapterProduct& product, const at::Tensor& a, const at::Tensor& b) {
  sums.narrow(0, product.first_row, b.size(0)).addmm_(b.to(sums.scalar_type()), a.to(sums.scalar_type()), 1, product.scale);
  return sums;
}

// Returns what a rank cuts its part of a tensor of `to` from: values, or bytes of the whole matrix if its format depends on all
// of it.
at::Tensor in_wanted_form(const Store& to, int tensor, const at::Tensor& values) {
  const ParamInfo& info = to.info(tensor);
  const at::Tensor there = values.to(to.state().links->device());
  if (!info.is_packed()) return there.to(to.plan().main().precision.master());
  if (packs_by_rows(info.pack)) return there;
  const PackedStack whole{info.pack, info.shape, at::zeros({packed_bytes(info.pack, info.shape)}, at::kByte)};
  with_context([&] { return fmt::format("parameter '{}'", info.name); }, [&] { pack(values.cpu(), whole); });
  return whole.bytes;
}

}  // namespace

MovedBytes move_whole(const std::vector<WholeMove>& moves, const Store& from, Store& to, FirstFailure& failure) {
  MovedBytes moved;
  const int ranks = from.plan().world_place().size;
  for (const WholeMove& move : moves) {
    const int source = move.tensor.from;
    at::Tensor values =
        move.source == ValuesOf::master ? whole_tensors::master(from, source) : whole_tensors::parameter(from, source);
    for (const AdapterProduct& product : move.products) {
      const at::Tensor a = whole_tensors::master(from, from.find(product.a)),
                       b = whole_tensors::master(from, from.find(product.b));
      failure.attempt([&] { values = with_product(values, product, a, b); });
    }
    failure.attempt([&] {
      const int64_t bytes = values.numel() * size_of(values.scalar_type());
      const int64_t owned = from.unit_of(source).plan.held ? from.owned(source).count * size_of(values.scalar_type()) : 0;
      const bool is_spread = owned < bytes;
      moved.sent += is_spread && ranks > 1 ? owned * (ranks - 1) : 0;
      moved.local += is_spread ? owned : bytes;
      whole_tensors::write_held(to, move.tensor.to, in_wanted_form(to, move.tensor.to, values));
    });
  }
  return moved;
}

}  // namespace zt
