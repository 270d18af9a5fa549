#include "queued_backend.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "core/bytes.h"
#include "zt/base/error.h"

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

// Divides an all_reduce, reduce_scatter or all_gather of lists: long tensors are sent alone, small ones are packed into one
// tensor. The results are those of one call per tensor. In the packed tensor, the parts of one rank lie one after the other.
class SmallTensors {
 public:
  SmallTensors(const Operation& operation, int ranks);

  const std::vector<size_t>& alone() const { return alone_; }
  bool empty() const { return packed_.empty(); }
  Operation single(size_t index) const;
  // Returns one operation on the packed tensor, with `in` filled in.
  Operation pack() const;
  // Copies the results of `packed` to the tensors of the list.
  void unpack(const Operation& packed) const;

 private:
  const Operation& operation_;
  const int ranks_;
  std::vector<size_t> alone_, packed_;
};

SmallTensors::SmallTensors(const Operation& operation, int ranks) : operation_(operation), ranks_(ranks) {
  for (size_t i = 0; i < operation.in.size(); ++i) (operation.in[i].nbytes() >= kAlone ? alone_ : packed_).push_back(i);
}

Operation SmallTensors::single(size_t index) const {
  Operation single{
      .kind = operation_.kind, .out = {operation_.out[index]}, .in = {operation_.in[index]}, .reduce = operation_.reduce};
  single.call = operation_.call;  // ranks compare the call of the whole list, and error messages show it
  return single;
}

Operation SmallTensors::pack() const {
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

void SmallTensors::unpack(const Operation& packed) const {
  const int parts = operation_.kind == CallKind::all_gather ? ranks_ : 1;
  copy_parts(CopyDirection::from_flat, operation_.out, packed_, parts, packed.out[0]);
}

}  // namespace

// Sends small tensors packed into one, and long tensors alone.
void QueuedBackend::run_list(const Operation& operation, WaitPolicy& policy) {
  const SmallTensors packing(operation, group().size());
  for (const size_t i : packing.alone()) run_single(packing.single(i), policy);
  if (packing.empty()) return;
  const Operation packed = packing.pack();
  run_single(packed, policy);
  packing.unpack(packed);
}

Work QueuedBackend::submit(Operation operation, Async async) {
  if (async == Async::yes)
    return queue_.submit([this, operation = std::move(operation)](WaitPolicy::Style style) { run(operation, style); });
  queue_.run_now([&](WaitPolicy::Style style) { run(operation, style); });
  return Work();
}

void QueuedBackend::run_in_turn(const Body& task) {
  std::exception_ptr declined;
  queue_.run_now([&](WaitPolicy::Style style) {
    try {
      run_task(style, task);
    } catch (const Declined&) {
      declined = std::current_exception();
    }
  });
  if (declined) std::rethrow_exception(declined);
}

void QueuedBackend::run(const Operation& operation, WaitPolicy::Style style) {
  run_operation(operation, style, [&](WaitPolicy& policy) {
    if (operation.turn < kCheckedFirst || check_ == CheckMode::full) compare(operation, policy);
    if (operation.in.size() > 1 || operation.out.size() > 1) run_list(operation, policy);
    else run_single(operation, policy);
  });
}

void QueuedBackend::check_wait() const {
  check_abort();
  if (queue_.cancelled()) throw Aborted("the communicator was closed while it waited");
}

}  // namespace zt::comm
