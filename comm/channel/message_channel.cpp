#include "channel/message_channel.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "channel/checked_channel.h"
#include "channel/message.h"
#include "core/bytes.h"

namespace zt::comm {

namespace {

constexpr size_t kHeadBytes = 2048;  // MPI sends messages of 4 KiB at once on every transport

// At the start of a head.
struct HeadNotice {
  int64_t shape_words = 0;  // length of the shapes; -1: as in the last message
  int64_t is_inline = 0;    // the shapes and the data follow in the head, else in messages of their own
};

at::Tensor byte_tensor(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::kByte);
}

// Returns the data of a tensor as bytes: messages need no type.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.view({-1}).view(at::kByte);
}

class MessageChannel : public CheckedChannel {
 public:
  MessageChannel(Group pair, int depth, std::shared_ptr<Communicator> messages, std::shared_ptr<Communicator> answers)
      : CheckedChannel(std::move(pair), depth, at::kCPU), messages_(std::move(messages)), answers_(std::move(answers)) {}

 protected:
  Work put(std::vector<at::Tensor> tensors) override {
    if (under_way_ == depth()) answers_->recv(answer_, 1);
    else ++under_way_;
    MessageShapes shapes = shapes_of(tensors);
    const bool is_new = shapes != shapes_;
    const size_t shape_bytes = is_new ? shapes.size() * sizeof(int64_t) : 0;
    const size_t bytes = whole_lines(shape_bytes) + for_each_place(tensors, [](const at::Tensor&, size_t) {});
    const HeadNotice notice{is_new ? static_cast<int64_t>(shapes.size()) : -1, sizeof(HeadNotice) + bytes <= kHeadBytes};
    const at::Tensor head = byte_tensor(kHeadBytes).zero_();
    std::memcpy(bytes_of(head), &notice, sizeof(notice));
    if (notice.is_inline) {
      char* place = bytes_of(head) + sizeof(notice);
      if (shape_bytes > 0) std::memcpy(place, shapes.data(), shape_bytes);
      place += whole_lines(shape_bytes);
      for_each_place(tensors, [&](const at::Tensor& tensor, size_t offset) {
        std::memcpy(place + offset, tensor.const_data_ptr(), tensor.nbytes());
      });
    }
    // If the thread still sends, the head must queue up; else it is faster to send it from here.
    last_ = messages_->send(head, 1, notice.is_inline && last_.done() ? Async::no : Async::yes);
    if (!notice.is_inline) send_rest(tensors, shapes, shape_bytes);
    if (is_new) shapes_ = std::move(shapes);
    return notice.is_inline ? Work() : last_;
  }

  Received take() override {
    const at::Tensor head = byte_tensor(kHeadBytes);
    messages_->recv(head, 0);
    HeadNotice notice;
    std::memcpy(&notice, bytes_of(head), sizeof(notice));
    const char* place = bytes_of(head) + sizeof(notice);
    if (notice.shape_words >= 0) receive_shapes(notice, place);
    Received received{make_tensors(shapes_, at::kCPU), Work()};
    if (notice.shape_words >= 0) place += whole_lines(shapes_.size() * sizeof(int64_t));
    for_each_place(received.tensors, [&](const at::Tensor& tensor, size_t offset) {
      if (notice.is_inline) std::memcpy(bytes_of(tensor), place + offset, tensor.nbytes());
      else messages_->recv(as_bytes(tensor), 0);
    });
    answers_->send(answer_, 0);
    return received;
  }

 private:
  void send_rest(const std::vector<at::Tensor>& tensors, const MessageShapes& shapes, size_t shape_bytes) {
    if (shape_bytes > 0) {
      const at::Tensor words = byte_tensor(shape_bytes);
      std::memcpy(bytes_of(words), shapes.data(), shape_bytes);
      last_ = messages_->send(words, 1, Async::yes);
    }
    for_each_place(tensors, [&](const at::Tensor& tensor, size_t) { last_ = messages_->send(as_bytes(tensor), 1, Async::yes); });
  }

  void receive_shapes(const HeadNotice& notice, const char* place) {
    shapes_.resize(static_cast<size_t>(notice.shape_words));
    if (shapes_.empty()) return;
    const size_t bytes = shapes_.size() * sizeof(int64_t);
    if (notice.is_inline) {
      std::memcpy(shapes_.data(), place, bytes);
      return;
    }
    const at::Tensor words = byte_tensor(bytes);
    messages_->recv(words, 0);
    std::memcpy(shapes_.data(), bytes_of(words), bytes);
  }

  const std::shared_ptr<Communicator> messages_, answers_;
  const at::Tensor answer_ = byte_tensor(1).zero_();
  int under_way_ = 0;     // at the sender: messages whose answers were not received, up to the depth
  MessageShapes shapes_;  // of the last message
  Work last_;             // at the sender: the last send
};

}  // namespace

std::shared_ptr<Channel> make_message_channel(Group pair, int depth, std::shared_ptr<Communicator> messages,
                                              std::shared_ptr<Communicator> answers) {
  return std::make_shared<MessageChannel>(std::move(pair), depth, std::move(messages), std::move(answers));
}

}  // namespace zt::comm
