#include "pack.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "core/bytes.h"

namespace zt::comm {

namespace {

// Bytes from which a tensor is sent alone: copying it twice costs more than one more message.
constexpr size_t kAlone = size_t{256} << 10;

int64_t total_elements(at::TensorList tensors, const std::vector<size_t>& which) {
  int64_t total = 0;
  for (const size_t i : which) total += tensors[i].numel();
  return total;
}

enum class CopyDirection { into_flat, from_flat };

// Copies between the tensors and `flat`. `flat` holds part 0 of all tensors, then part 1 of all tensors, and so on.
void copy_parts(CopyDirection direction, at::TensorList tensors, const std::vector<size_t>& which, int parts,
                const at::Tensor& flat) {
  char* place = bytes_of(flat);
  for (int p = 0; p < parts; ++p) {
    for (const size_t i : which) {
      const size_t bytes = tensors[i].nbytes() / static_cast<size_t>(parts);
      char* part = bytes_of(tensors[i]) + static_cast<size_t>(p) * bytes;
      if (bytes > 0)
        std::memcpy(direction == CopyDirection::into_flat ? place : part, direction == CopyDirection::into_flat ? part : place,
                    bytes);
      place += bytes;
    }
  }
}

}  // namespace

Packing::Packing(const Operation& operation, int ranks) : operation_(operation), ranks_(ranks) {
  for (size_t i = 0; i < operation.in.size(); ++i) (operation.in[i].nbytes() >= kAlone ? alone_ : packed_).push_back(i);
}

Operation Packing::single(size_t index) const {
  Operation single{
      .kind = operation_.kind, .out = {operation_.out[index]}, .in = {operation_.in[index]}, .reduce = operation_.reduce};
  single.call = operation_.call;  // ranks compare the call of the whole list, and error messages show it
  return single;
}

Operation Packing::pack() const {
  const int parts = operation_.kind == CallKind::reduce_scatter ? ranks_ : 1;
  const auto options = operation_.in[packed_[0]].options();
  const auto in = at::empty({total_elements(operation_.in, packed_)}, options);
  const bool in_place = operation_.kind == CallKind::all_reduce;
  const auto out = in_place ? in : at::empty({total_elements(operation_.out, packed_)}, options);
  copy_parts(CopyDirection::into_flat, operation_.in, packed_, parts, in);
  Operation packed{.kind = operation_.kind, .out = {out}, .in = {in}, .reduce = operation_.reduce};
  packed.call = operation_.call;
  return packed;
}

void Packing::unpack(const Operation& packed) const {
  const int parts = operation_.kind == CallKind::all_gather ? ranks_ : 1;
  copy_parts(CopyDirection::from_flat, operation_.out, packed_, parts, packed.out[0]);
}

}  // namespace zt::comm
