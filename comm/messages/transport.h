// Messages between two ranks of a group. A Transport is all that a backend of messages has to provide: all transports share the
// collectives of algorithms.h, and so give the same bits.
//
// Messages from one rank to another arrive in the order in which they were sent. There are no tags. A send may wait for the
// receiver (rendezvous). Threads: one at a time. Errors: Fault.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/group.h"
#include "queue/wait_policy.h"

namespace zt::comm {

class Transport {
 public:
  // One message under way. Until done() returns true, the caller must not write (send) or read (recv) its memory.
  class Message {
   public:
    virtual ~Message() = default;
    // Never waits. Throws Fault if the peer sent a different number of bytes or is gone.
    virtual bool done() = 0;
  };

  virtual ~Transport() = default;
  virtual const Group& group() const = 0;
  virtual const std::string& name() const = 0;
  virtual std::unique_ptr<Message> send(int peer, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Message> recv(int peer, void* data, size_t bytes) = 0;
  // Returns the bytes of the longest message that send and recv take.
  virtual size_t longest_message() const = 0;
  // Returns a number that changes when messages of this rank may have come further; 0 if the transport cannot tell.
  virtual uint32_t progress() const { return 0; }
  // Pauses after a poll of messages that found none done, until progress() is no longer `seen` or the policy wants to look again.
  // Returns false once the policy's time is up.
  [[nodiscard]] virtual bool pause(WaitPolicy& policy, uint32_t /*seen*/) { return policy.pause(); }
  virtual at::Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) = 0;
  virtual bool shares_memory() const { return false; }
  // As Backend::allocate_shared.
  virtual at::Tensor allocate_shared(at::IntArrayRef, at::ScalarType) { return {}; }
  // Returns a function that throws Aborted if another rank of the run failed.
  virtual std::function<void()> abort_check() const = 0;
  // Returns a transport over the two ranks of `plan`. Collective over them. Not called if the ranks share memory.
  virtual std::unique_ptr<Transport> pair(const ChannelPlan& plan) = 0;
  // As Backend::duplicate.
  virtual std::unique_ptr<Transport> duplicate(const std::string& name) = 0;
};

// A set of messages with one common wait.
class Messages {
 public:
  Messages(Transport& transport, WaitPolicy& policy) : transport_(transport), policy_(policy) {}

  void send(int peer, const void* data, size_t bytes);
  void recv(int peer, void* data, size_t bytes);
  // Waits until all messages are done, and forgets them. Throws TimedOut, or as the wait policy.
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
