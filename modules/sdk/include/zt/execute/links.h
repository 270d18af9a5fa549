// How a rank's actions and layers reach other ranks.
#pragma once

#include <string>
#include <vector>

#include "zt/comm/channel.h"
#include "zt/comm/comm.h"
#include "zt/model/unit.h"
#include "zt/program/kind.h"

namespace zt {

// All communicators and channels of a rank's programs. They are made before the first action, in one order on all ranks, because
// making one is collective. Does not change while actions run.
class Links {
 public:
  virtual ~Links();
  // Return the communicators over these mesh axes, joined in this order: for tensors on the device, and for counts, losses, limbs
  // of the norm and plain values, which are in host memory. With backends in host memory they are one. Throw Misuse for axes over
  // which no action or layer has declared to communicate.
  virtual Communicator& comm(const std::vector<std::string>& axes) const = 0;
  virtual Communicator& control(const std::vector<std::string>& axes) const = 0;
  // Returns the communicator over the ranks that hold the unit, of this rank's group along the program's split axes.
  virtual Communicator& holders(const Unit& unit) const = 0;
  // Returns the device of the rank's tensors: that on which the mesh's communicators move data, else the CPU.
  virtual at::Device device() const = 0;
  // Returns this rank's end of the channel of a message of its programs.
  virtual Channel& channel(const Message& message) const = 0;
};

}  // namespace zt
