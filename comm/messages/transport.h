// Messages between two ranks of a group: all that a backend in host memory needs to provide. The collectives are written
// once on top (algorithms.h), so every transport gives the same bits.
//
// Messages from one rank to another arrive in the order in which they were sent; there are no tags. A send may wait for the
// receiver (rendezvous). One thread at a time. Errors: Fault.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "core/group.h"
#include "wait_policy.h"

namespace zt::comm {

class Transport {
 public:
  // One message under way. The memory stays untouched (send) or unread (recv) until done() said yes.
  class Message {
   public:
    virtual ~Message() = default;
    // Never waits. Throws Fault if the other side sent another number of bytes, or is gone.
    virtual bool done() = 0;
  };

  virtual ~Transport() = default;
  virtual const Group& group() const = 0;
  virtual const std::string& name() const = 0;
  virtual std::unique_ptr<Message> send(int peer, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Message> recv(int peer, void* data, size_t bytes) = 0;
  // The longest message that send and recv take.
  virtual size_t longest_message() const = 0;
  virtual at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) = 0;
  // Where `shares_memory`: one tensor for all ranks. Collective.
  virtual bool shares_memory() const { return false; }
  virtual at::Tensor allocate_shared(at::IntArrayRef, at::ScalarType) { return {}; }
  // Throws Aborted when another rank of the run failed and waiting has no sense.
  virtual void check_abort() const = 0;
  // Collective.
  virtual std::unique_ptr<Transport> duplicate(const std::string& name) = 0;
};

// Thrown by Messages::wait, made a Fault that tells the whole story by HostBackend.
struct TimedOut {
  std::vector<int> peers;
};

// Several messages that are waited for together.
class Messages {
 public:
  Messages(Transport& transport, WaitPolicy& policy) : transport_(transport), policy_(policy) {}

  void send(int peer, const void* data, size_t bytes);
  void recv(int peer, void* data, size_t bytes);
  // Returns when all are done and forgets them. Throws TimedOut.
  void wait();

 private:
  struct Pending {
    int peer;
    std::unique_ptr<Transport::Message> message;
  };
  std::vector<int> peers() const;

  Transport& transport_;
  WaitPolicy& policy_;
  std::vector<Pending> pending_;
};

}  // namespace zt::comm
