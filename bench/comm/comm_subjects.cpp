#include "comm_subjects.h"

#include <ATen/ATen.h>
#include <mpi.h>

#include <cstring>

#include "core/reduce_tree.h"

namespace zt::comm::bench {

namespace {

char* data_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}

// The numbers of elements of `out` and `in` for `part` elements per rank.
struct Counts {
  int64_t out = 0, in = 0;
};

Counts counts_of(const std::string& op, int64_t part, int size) {
  if (op == "barrier") return {1, 1};
  if (op == "reduce_scatter") return {part, part * size};
  if (op == "all_gather") return {part * size, part};
  return {part * size, part * size};
}

double bus_factor(const std::string& op, int size) {
  const double share = static_cast<double>(size - 1) / size;
  if (op == "all_reduce") return 2 * share;
  if (op == "broadcast" || op == "barrier") return 1;
  return share;
}

std::function<Work(Async)> our_call(Communicator& comm, const std::string& op, const at::Tensor& out, const at::Tensor& in) {
  if (op == "all_reduce") return [&comm, out, in](Async async) { return comm.all_reduce(out, in, ReduceOp::sum, async); };
  if (op == "reduce_scatter") return [&comm, out, in](Async async) { return comm.reduce_scatter(out, in, ReduceOp::sum, async); };
  if (op == "all_gather") return [&comm, out, in](Async async) { return comm.all_gather(out, in, async); };
  if (op == "all_to_all") return [&comm, out, in](Async async) { return comm.all_to_all(out, in, {}, {}, async); };
  if (op == "broadcast") return [&comm, out](Async async) { return comm.broadcast(out, 0, async); };
  return [&comm](Async) {
    comm.barrier();
    return Work();
  };
}

std::function<void()> raw_call(const std::string& op, const at::Tensor& out, const at::Tensor& in, int size, Place place) {
  const bool adds = op == "all_reduce" || op == "reduce_scatter";
  if (adds && in.scalar_type() != at::kFloat) return nullptr;
  const auto n = static_cast<int>(in.numel()), p = static_cast<int>(out.numel()), b = static_cast<int>(in.nbytes());
  void *to = out.mutable_data_ptr(), *from = in.mutable_data_ptr();
  if (place == Place::in_place) {
    // MPI writes the result of an in-place reduce_scatter to the start of the buffer.
    if (op == "reduce_scatter") to = from;
    from = MPI_IN_PLACE;
  }
  if (op == "all_reduce") return [=] { MPI_Allreduce(from, to, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
  if (op == "reduce_scatter") return [=] { MPI_Reduce_scatter_block(from, to, p, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
  if (op == "all_gather") return [=] { MPI_Allgather(from, b, MPI_BYTE, to, b, MPI_BYTE, MPI_COMM_WORLD); };
  if (op == "all_to_all") return [=] { MPI_Alltoall(from, b / size, MPI_BYTE, to, b / size, MPI_BYTE, MPI_COMM_WORLD); };
  if (op == "broadcast") return [=] { MPI_Bcast(to, b, MPI_BYTE, 0, MPI_COMM_WORLD); };
  return [] { MPI_Barrier(MPI_COMM_WORLD); };
}

// Returns the memory traffic of this rank's part. all_reduce: adds 1 / W of each of W inputs and writes the sum W times.
// reduce_scatter: adds and writes once. Others: copy the bytes that the rank receives. The buffers are ordinary memory of the
// same sizes, in place if the collective is in place.
std::function<void()> limit_call(const std::string& op, const at::Tensor& like_out, const at::Tensor& like_in, int rank, int size,
                                 Place place) {
  if (op == "barrier") return [] {};
  const bool is_in_place = place == Place::in_place;
  const auto in = at::ones_like(like_in), out = is_in_place && op != "all_gather" ? in : at::zeros_like(like_out);
  if (op == "all_reduce" || op == "reduce_scatter") {
    const int copies = op == "all_reduce" ? size : 1;
    const size_t segment = in.nbytes() / static_cast<size_t>(size), block = size_t{16} << 10;
    return [=] {
      std::vector<const void*> sources(static_cast<size_t>(size));
      for (size_t at = 0; at < segment; at += block) {
        const size_t bytes = std::min(block, segment - at);
        for (size_t r = 0; r < sources.size(); ++r) sources[r] = data_of(in) + r * segment + at;
        reduce_tree(in.scalar_type(), ReduceOp::sum, data_of(out) + at, sources, static_cast<int64_t>(bytes / in.element_size()));
        for (int c = 1; c < copies; ++c)
          std::memcpy(data_of(out) + static_cast<size_t>(c) * segment + at, data_of(out) + at, bytes);
      }
    };
  }
  const bool gives_only = op == "broadcast" && rank == 0;
  return [=] {
    const size_t bytes = gives_only ? 0 : std::min(out.nbytes(), in.nbytes());
    for (size_t at = is_in_place ? bytes : 0; at < out.nbytes() && bytes > 0; at += bytes)
      std::memcpy(data_of(out) + at, data_of(in), bytes);
  };
}

std::function<int64_t()> check(const std::string& op, const at::Tensor& out, int rank, int size) {
  return [=]() -> int64_t {
    if (op == "barrier") return 0;
    const auto got = out.to(at::kDouble);
    if (op == "all_reduce" || op == "reduce_scatter") return got.ne(size * (size + 1) / 2.0).sum().item<int64_t>();
    if (op == "broadcast") return got.ne(1.0).sum().item<int64_t>();
    const auto expected = at::arange(1, size + 1).to(at::kDouble) + (op == "all_to_all" ? rank : 0);
    return got.reshape({size, -1}).ne(expected.unsqueeze(1)).sum().item<int64_t>();
  };
}

}  // namespace

bool has_in_place(const std::string& op) {
  return op == "all_reduce" || op == "reduce_scatter" || op == "all_gather";
}

const std::vector<std::string>& op_names() {
  static const std::vector<std::string> names{"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                              "broadcast",  "barrier",        "channel",    "ping_pong"};
  return names;
}

Subject make_subject(Communicator& comm, const std::string& op, int64_t bytes, at::ScalarType dtype, Memory memory, Place place) {
  if (op == "channel" || op == "ping_pong") return make_channel_subject(comm, op, bytes, dtype);
  const int size = comm.size(), rank = comm.rank();
  const int64_t part = std::max<int64_t>(1, bytes / static_cast<int64_t>(c10::elementSize(dtype)) / size);
  const Counts counts = counts_of(op, part, size);
  const auto make = [&](int64_t count) {
    return memory == Memory::window ? comm.allocate({count}, dtype) : at::zeros({count}, dtype);
  };
  Subject subject;
  subject.op = op;
  if (place == Place::in_place) {
    const at::Tensor whole = make(std::max(counts.out, counts.in));
    const auto piece = [&](int64_t count) { return count == whole.numel() ? whole : whole.narrow(0, rank * part, part); };
    subject.out = piece(counts.out);
    subject.in = piece(counts.in).fill_(rank + 1);
  } else {
    subject.out = make(counts.out);
    subject.in = make(counts.in).fill_(rank + 1);
  }
  if (op == "broadcast" && rank == 0) subject.out.fill_(1);
  if (op == "all_to_all") subject.in.view({size, part}).add_(at::arange(size).to(dtype).unsqueeze(1));
  subject.bus_factor = bus_factor(op, size);
  subject.count = std::max(counts.out, counts.in);
  subject.ours = our_call(comm, op, subject.out, subject.in);
  subject.raw = raw_call(op, subject.out, subject.in, size, place);
  subject.limit = limit_call(op, subject.out, subject.in, rank, size, place);
  subject.wrong = check(op, subject.out, rank, size);
  return subject;
}

}  // namespace zt::comm::bench
