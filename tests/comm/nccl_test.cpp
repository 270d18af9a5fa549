// The nccl backend against a fake NCCL and fake streams that write down what they are asked. Rank 1 of 3; no GPU.
#include <gtest/gtest.h>

#include "checked.h"
#include "nccl/nccl_backend.h"
#include "null/null_backend.h"
#include "zt/error.h"

namespace zt::comm {

namespace {

struct Log {
  std::vector<std::string> lines;
  void add(std::string line) { lines.push_back(std::move(line)); }
  std::vector<std::string> take() { return std::exchange(lines, {}); }
};

struct FakeStreams : StreamApi {
  explicit FakeStreams(Log& log) : log(log) {}
  at::Device device() const override { return at::kCPU; }
  c10::Stream current() const override { return c10::Stream(c10::Stream::UNSAFE, at::kCPU, 0); }
  c10::Stream take_from_pool() const override { return c10::Stream(c10::Stream::UNSAFE, at::kCPU, 7); }
  cudaStream_t native(const c10::Stream& stream) const override { return reinterpret_cast<cudaStream_t>(stream.id()); }
  void* record(const c10::Stream& stream) const override {
    log.add(fmt::format("record {}", stream.id()));
    ++events;
    return &events;
  }
  void block(void*, const c10::Stream& stream) const override { log.add(fmt::format("block {}", stream.id())); }
  bool query(void*) const override { return is_done; }
  void destroy(void*) const noexcept override { --events; }
  void keep_for(const c10::Stream& stream, const at::Tensor&) const override { log.add(fmt::format("keep {}", stream.id())); }

  Log& log;
  mutable int events = 0;
  bool is_done = true;
};

class NcclTest : public testing::Test {
 protected:
  NcclTest() {
    const auto ok = [](auto...) { return ncclSuccess; };
    api.get_unique_id = ok;
    api.comm_init_rank = [this](ncclComm_t* comm, int size, ncclUniqueId, int rank) {
      log.add(fmt::format("init {} of {}", rank, size));
      *comm = reinterpret_cast<ncclComm_t>(this);
      return ncclSuccess;
    };
    api.comm_destroy = [this](ncclComm_t) { return said("destroy"); };
    api.comm_abort = [this](ncclComm_t) { return said("abort"); };
    api.comm_get_async_error = [this](ncclComm_t, ncclResult_t* state) {
      *state = async_error;
      return ncclSuccess;
    };
    api.get_error_string = [](ncclResult_t) { return "a peer left"; };
    api.group_start = [this] { return said("("); };
    api.group_end = [this] { return said(")"); };
    api.all_reduce = [this](const void*, void*, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t, cudaStream_t stream) {
      return said(
          fmt::format("all_reduce {} type {} op {} stream {}", n, int{type}, int{op}, reinterpret_cast<intptr_t>(stream)));
    };
    api.reduce_scatter = [this](const void*, void*, size_t n, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
      return said(fmt::format("reduce_scatter {}", n));
    };
    api.all_gather = [this](const void*, void*, size_t n, ncclDataType_t, ncclComm_t, cudaStream_t) {
      return said(fmt::format("all_gather {}", n));
    };
    api.broadcast = [this](const void*, void*, size_t n, ncclDataType_t, int root, ncclComm_t, cudaStream_t) {
      return said(fmt::format("broadcast {} from {}", n, root));
    };
    api.reduce = [this](const void*, void* to, size_t n, ncclDataType_t, ncclRedOp_t, int root, ncclComm_t, cudaStream_t) {
      return said(fmt::format("reduce {} to {}{}", n, root, to ? "" : " no out"));
    };
    api.send = [this](const void* data, size_t n, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
      return said(fmt::format("send {} at {} to {}", n, static_cast<const char*>(data) - base, peer));
    };
    api.recv = [this](void* data, size_t n, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
      return said(fmt::format("recv {} at {} from {}", n, static_cast<char*>(data) - base, peer));
    };
  }

  std::unique_ptr<Communicator> make() {
    auto backend = make_nccl_backend(make_null_backend({"dp", 1, {0, 1, 2}}), api, streams);
    EXPECT_EQ(log.take(), std::vector<std::string>{"init 1 of 3"});
    return std::make_unique<Checked>(std::move(backend));
  }
  // Only what reached NCCL.
  std::vector<std::string> calls() {
    auto lines = log.take();
    std::erase_if(lines, [](const std::string& line) {
      return line.starts_with("record") || line.starts_with("block") || line.starts_with("keep");
    });
    return lines;
  }
  ncclResult_t said(std::string line) {
    log.add(std::move(line));
    return next_result;
  }

  Log log;
  NcclApi api;
  std::shared_ptr<FakeStreams> streams = std::make_shared<FakeStreams>(log);
  const char* base = nullptr;
  ncclResult_t next_result = ncclSuccess;
  ncclResult_t async_error = ncclSuccess;
};

using Lines = std::vector<std::string>;

TEST_F(NcclTest, OrdersItsStreamBehindTheCurrentOneAndBack) {
  const auto comm = make();
  const auto t = at::ones({4});
  const Work work = comm->all_reduce(t, t, ReduceOp::sum, Async::yes);
  const std::string call = fmt::format("all_reduce 4 type {} op {} stream 7", int{ncclFloat32}, int{ncclSum});
  EXPECT_EQ(log.take(), (Lines{"record 0", "block 7", call, "keep 7", "keep 7", "record 7"}));
  work.wait();
  EXPECT_EQ(log.take(), (Lines{"block 0"}));
  comm->all_reduce(t, t);
  EXPECT_EQ(log.take().back(), "block 0") << "a blocking call makes the current stream wait, not the host";
}

TEST_F(NcclTest, CallsOfEveryCollective) {
  const auto comm = make();
  const auto one = at::ones({2}), three = at::ones({6}), other = at::ones({6});
  comm->reduce_scatter(one, three);
  comm->all_gather(three, one);
  comm->broadcast(one, 2);
  comm->reduce(at::Tensor(), one, 0);
  comm->reduce(one, one, 1);
  EXPECT_EQ(calls(), (Lines{"reduce_scatter 2", "all_gather 8", "broadcast 8 from 2", "reduce 2 to 0 no out", "reduce 2 to 1"}));
  base = static_cast<const char*>(one.const_data_ptr());
  comm->send(one, 0);
  comm->recv(one, 2);
  comm->gather(at::Tensor(), one, 0);
  EXPECT_EQ(calls(), (Lines{"send 8 at 0 to 0", "recv 8 at 0 from 2", "(", "send 8 at 0 to 0", ")"}));
}

TEST_F(NcclTest, UnequalAllToAllIsOneGroup) {
  const auto comm = make();
  const auto buffer = at::ones({8});
  base = static_cast<const char*>(buffer.const_data_ptr());
  comm->all_to_all(buffer.narrow(0, 4, 4), buffer.narrow(0, 0, 4), {0, 3, 1}, {1, 3, 0});
  EXPECT_EQ(calls(), (Lines{"(", "send 4 at 0 to 0", "recv 0 at 16 from 0", "send 12 at 4 to 1", "recv 12 at 16 from 1",
                            "send 0 at 16 to 2", "recv 4 at 28 from 2", ")"}));
}

TEST_F(NcclTest, ListsAreOneGroup) {
  const auto comm = make();
  comm->all_gather(std::vector<at::Tensor>{at::ones({3}), at::ones({6})}, std::vector<at::Tensor>{at::ones({1}), at::ones({2})});
  EXPECT_EQ(calls(), (Lines{"(", "all_gather 4", "all_gather 8", ")"}));
}

TEST_F(NcclTest, BooleansTravelAsBytes) {
  const auto comm = make();
  const auto t = at::ones({4}, at::kBool);
  comm->all_reduce(t, t, ReduceOp::sum);
  comm->all_reduce(t, t, ReduceOp::product);
  EXPECT_EQ(calls(), (Lines{fmt::format("all_reduce 4 type {} op {} stream 7", int{ncclUint8}, int{ncclMax}),
                            fmt::format("all_reduce 4 type {} op {} stream 7", int{ncclUint8}, int{ncclMin})}));
  const auto half_word = at::ones({4}, at::kShort);
  EXPECT_THROW(comm->all_reduce(half_word, half_word), Misuse);
}

TEST_F(NcclTest, BarrierIsASumThatTheHostWaitsFor) {
  const auto comm = make();
  comm->barrier();
  EXPECT_EQ(calls().size(), 1u);
  streams->is_done = false;
  comm->set_timeout(std::chrono::milliseconds(50));
  try {
    comm->barrier();
    FAIL() << "no time-out";
  } catch (const Fault& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("timed out after 0.05 s: rank 1 (world rank 1) of axis 'dp' waits in operation 1, barrier"),
              std::string::npos)
        << said;
  }
  EXPECT_EQ(calls().back(), "abort");
  EXPECT_THROW(comm->barrier(), Fault) << "a failed communicator stays failed";
}

TEST_F(NcclTest, ErrorsOfNcclAreFaults) {
  const auto comm = make();
  const auto t = at::ones({4});
  const Work work = comm->all_reduce(t, t, ReduceOp::sum, Async::yes);
  streams->is_done = false;
  async_error = ncclRemoteError;
  EXPECT_THROW(work.synchronize(), Fault);
  async_error = ncclSuccess;
  const auto fresh = make_nccl_backend(make_null_backend({"dp", 0, {0}}), api, streams);
  next_result = ncclSystemError;
  EXPECT_THROW(fresh->submit({.kind = Kind::broadcast, .out = {t}, .peer = 0}, Async::no), Fault);
}

TEST_F(NcclTest, GivesBackEventsAndTheCommunicator) {
  {
    const auto comm = make();
    const Work work = comm->broadcast(at::ones({1}), 0, Async::yes);
    comm->drain();
    EXPECT_EQ(streams->events, 1) << "the one that the work holds";
  }
  EXPECT_EQ(streams->events, 0);
  EXPECT_EQ(calls().back(), "destroy");
}

}  // namespace

}  // namespace zt::comm
