// Messages from one rank to another, in the order in which they were sent. A message is a list of tensors.
//
// A channel has one direction and two ends: the rank that sends and the rank that receives. It holds up to depth() messages that
// were sent and not yet received. Channels are independent of each other and of the communicator that made them.
//
// Ownership: a channel keeps what it needs alive, also after its communicator is gone. Received tensors belong to the caller.
// Threads: only one thread, the rank's, uses an end and waits for its Works.
// Errors: Misuse if the other end's method is called or a tensor cannot be sent, before anything is moved. Fault if the peer is
// gone, if its script has ended, or if a wait takes longer than the timeout that the communicator had when it made the channel:
// do not use the channel again. Aborted if another rank of the run failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/comm/comm.h"

namespace zt {

class Channel {
 public:
  struct Received {
    std::vector<at::Tensor> tensors;
    Work work;  // the tensors may be read after work.wait()
  };

  virtual ~Channel();

  virtual const std::string& name() const = 0;  // for messages: "pp forward 0>1"
  virtual int depth() const = 0;

  // Sends the tensors as one message. They may have any shapes and types, also zero dimensions, no elements, or be undefined, and
  // lie on the communicator's device or on the CPU. A tensor that is not contiguous is sent as a contiguous copy. Does not wait
  // while fewer than depth() messages are under way; else waits until the receiver has taken one. The tensors may be freed or
  // changed after work.wait(). Only the sending end may call it.
  virtual Work send(std::vector<at::Tensor> tensors) = 0;
  // Waits for the next message and takes it. The tensors are new and contiguous, and equal those that were sent. On the backend
  // "null" a message has no tensors. Only the receiving end may call it.
  virtual Received recv() = 0;
};

ZT_OBJECT(Channel)

}  // namespace zt
