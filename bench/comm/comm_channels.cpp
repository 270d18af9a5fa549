#include <ATen/ATen.h>
#include <mpi.h>

#include <array>
#include <cstring>

#include "comm_subjects.h"
#include "zt/comm/channel.h"

namespace zt::comm::bench {

namespace {

constexpr int kDepth = 4;
constexpr int kStreamed = 32;

char* bytes_in(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}

void fill_stream(Subject& subject, Communicator& comm, const at::Tensor& in, const std::shared_ptr<at::Tensor>& got) {
  const int rank = comm.rank(), bytes = static_cast<int>(in.nbytes());
  const auto channel = rank < 2 ? comm.channel(0, 1, kDepth, "bench") : nullptr;
  subject.messages = kStreamed;
  subject.ours = [=](Async) {
    Work last;
    for (int i = 0; i < kStreamed && rank == 0; ++i) last = channel->send({in});
    for (int i = 0; i < kStreamed && rank == 1; ++i) *got = channel->recv().tensors[0];
    return last;
  };
  const at::Tensor out = at::zeros_like(in);
  subject.raw = [=] {
    std::array<MPI_Request, kDepth> requests;
    requests.fill(MPI_REQUEST_NULL);
    for (int i = 0; i < kStreamed && rank < 2; ++i) {
      MPI_Request& request = requests[static_cast<size_t>(i % kDepth)];
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      if (rank == 0) MPI_Isend(in.const_data_ptr(), bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
      else MPI_Recv(out.mutable_data_ptr(), bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Waitall(kDepth, requests.data(), MPI_STATUSES_IGNORE);
  };
  const at::Tensor buffers = at::ones({kDepth, in.numel()}, in.options());
  subject.limit = [=] {
    for (int i = 0; i < kStreamed && rank < 2; ++i) {
      const at::Tensor& tensor = rank == 0 ? in : out;
      char* buffer = bytes_in(buffers) + static_cast<size_t>(i % kDepth) * in.nbytes();
      if (rank == 0) std::memcpy(buffer, bytes_in(tensor), in.nbytes());
      else std::memcpy(bytes_in(tensor), buffer, in.nbytes());
    }
  };
}

void fill_ping_pong(Subject& subject, Communicator& comm, const at::Tensor& in, const std::shared_ptr<at::Tensor>& got) {
  const int rank = comm.rank(), bytes = static_cast<int>(in.nbytes());
  const auto there = rank < 2 ? comm.channel(0, 1, kDepth, "bench") : nullptr;
  const auto back = rank < 2 ? comm.channel(1, 0, kDepth, "bench") : nullptr;
  const at::Tensor out = at::zeros_like(in);
  subject.messages = 2;
  subject.ours = [=](Async) {
    if (rank == 1) *got = there->recv().tensors[0];
    if (rank < 2) (rank == 0 ? there : back)->send({in});
    if (rank == 0) *got = back->recv().tensors[0];
    return Work();
  };
  subject.raw = [=] {
    const auto receive = [&](int peer) {
      MPI_Recv(out.mutable_data_ptr(), bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
    if (rank == 1) receive(0);
    if (rank < 2) MPI_Send(in.const_data_ptr(), bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
    if (rank == 0) receive(1);
  };
  subject.limit = [=] {
    for (int copy = 0; copy < 4; ++copy) std::memcpy(bytes_in(out), bytes_in(in), in.nbytes());
  };
}

}  // namespace

Subject make_channel_subject(Communicator& comm, const std::string& op, int64_t bytes, at::ScalarType dtype) {
  Subject subject;
  subject.op = op;
  subject.count = std::max<int64_t>(1, bytes / static_cast<int64_t>(c10::elementSize(dtype)));
  const at::Tensor in = at::ones({subject.count}, dtype);
  const auto got = std::make_shared<at::Tensor>(at::ones_like(in));
  subject.out = in;
  subject.in = in;
  if (op == "channel") fill_stream(subject, comm, in, got);
  else fill_ping_pong(subject, comm, in, got);
  subject.wrong = [got] { return got->ne(1).sum().item<int64_t>(); };
  return subject;
}

}  // namespace zt::comm::bench
