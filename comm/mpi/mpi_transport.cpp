#include "mpi/mpi_transport.h"

#include <array>
#include <span>

#include "mpi/runtime.h"
#include "mpi/watchdog.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

constexpr int kTag = 0;

class MpiMessage : public Transport::Message {
 public:
  // expected: the bytes a receive waits for; -1 for a send.
  MpiMessage(MPI_Request request, int64_t expected, std::string doing)
      : request_(request), expected_(expected), doing_(std::move(doing)) {}

  // MPI cannot withdraw a message. QueuedBackend keeps its memory, and MPI_Finalize, which would wait for it, is skipped.
  ~MpiMessage() override {
    if (request_ != MPI_REQUEST_NULL) give_up_mpi();
  }

  bool done() override {
    if (request_ == MPI_REQUEST_NULL) return true;
    int is_done = 0;
    MPI_Status status;
    const int code = MPI_Test(&request_, &is_done, &status);
    if (code != MPI_SUCCESS) fail(code);
    if (is_done && expected_ >= 0) check_length(status);
    return is_done != 0;
  }

 private:
  [[noreturn]] void fail(int code) {
    request_ = MPI_REQUEST_NULL;
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    give_up_mpi();
    if (error_class == MPI_ERR_TRUNCATE) {
      fault("more than {} bytes came where {} were expected: do all ranks pass the same counts and types?", expected_, expected_);
    }
    check_mpi(code, doing_);
    fault("MPI failed {}", doing_);
  }

  void check_length(const MPI_Status& status) const {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes == expected_) return;
    give_up_mpi();
    fault("{} bytes came where {} were expected: do all ranks pass the same counts and types?", bytes, expected_);
  }

  MPI_Request request_;
  const int64_t expected_;
  const std::string doing_;
};

std::string waiting_text(const Group& group) {
  return fmt::format("{} waits for all ranks of axis '{}' to make its communicator", group.rank_name(group.rank), group.name);
}

// Makes a communicator of those of `parent`'s ranks that `places` names. Collective over these ranks, which `group` describes.
// whose: of the parent, for messages.
MPI_Comm make_comm(MPI_Comm parent, const char* whose, std::span<const int> places, const Group& group,
                   std::chrono::milliseconds limit) {
  const Watchdog watchdog(limit, waiting_text(group), group);
  MPI_Group everyone = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(parent, &everyone), fmt::format("asking for the {}'s group", whose));
  check_mpi(MPI_Group_incl(everyone, static_cast<int>(places.size()), places.data(), &members), "making a group");
  check_mpi(MPI_Comm_create_group(parent, members, kTag, &comm), "making a communicator");
  MPI_Group_free(&members);
  MPI_Group_free(&everyone);
  return comm;
}

class MpiTransport : public Transport {
 public:
  MpiTransport(MPI_Comm comm, Group group, std::chrono::milliseconds limit)
      : comm_(comm), group_(std::move(group)), limit_(limit) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }

  // comm_ is not freed: MPI_Comm_free is collective, but garbage collectors free objects in a different order on each rank.

  const Group& group() const override { return group_; }
  const std::string& name() const override { return kName; }
  std::unique_ptr<Message> send(int peer, const void* data, size_t bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, kTag, comm_, &request), "starting to send");
    return std::make_unique<MpiMessage>(request, -1, "sending");
  }
  std::unique_ptr<Message> recv(int peer, void* data, size_t bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, kTag, comm_, &request), "starting to receive");
    return std::make_unique<MpiMessage>(request, static_cast<int64_t>(bytes), "receiving");
  }
  size_t longest_message() const override { return size_t{1} << 30; }  // MPI counts with an int
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) override { return large_zeros(shape, dtype); }
  std::function<void()> abort_check() const override {
    return [] {};  // mpirun ends the others when a rank fails
  }
  std::unique_ptr<Transport> pair(const ChannelPlan& plan) override {
    Group ends = plan.pair(group_);
    const MPI_Comm made = make_comm(comm_, "axis", std::array{plan.from, plan.to}, ends, limit_);
    return std::make_unique<MpiTransport>(made, std::move(ends), limit_);
  }
  std::unique_ptr<Transport> duplicate(const std::string& name) override {
    MPI_Comm copy = MPI_COMM_NULL;
    const Watchdog watchdog(limit_, waiting_text(group_), group_);
    check_mpi(MPI_Comm_dup(comm_, &copy), "duplicating a communicator");
    return std::make_unique<MpiTransport>(copy, group_.renamed(name), limit_);
  }

 private:
  inline static const std::string kName = "mpi";
  MPI_Comm comm_;
  Group group_;
  std::chrono::milliseconds limit_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const World& world, Group group, std::chrono::milliseconds limit) {
  start_mpi(world, limit);
  const MPI_Comm comm = make_comm(MPI_COMM_WORLD, "world", group.ranks, group, limit);
  return std::make_unique<MpiTransport>(comm, std::move(group), limit);
}

}  // namespace zt::comm
