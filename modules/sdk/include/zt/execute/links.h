// How a rank's actions and layers reach other ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "zt/comm/channel.h"
#include "zt/comm/comm.h"
#include "zt/comm/mesh.h"
#include "zt/model/unit.h"
#include "zt/program/kind.h"

namespace zt {

// Where a rank stands among those of its programs' mesh.
struct RankPlace {
  Coord coord = {};
  std::vector<std::string> sample_axes = {};  // mesh axes along which ranks have different samples
  std::vector<std::string> split_axes = {};   // mesh axes along which ranks run different positions
  std::vector<std::string> token_axes = {};   // mesh axes along which ranks have other tokens of the same samples

  // Returns whether this rank is the first of those along `axes` that have the same samples and run the same positions: only it
  // counts them.
  bool is_first_of_samples(const std::vector<std::string>& axes) const { return is_first(axes, {}); }
  // Returns whether it is the first of those that have the same tokens of them, too. Only it adds to a sum over `axes`, because
  // the others have the same numbers.
  bool is_first_copy(const std::vector<std::string>& axes) const { return is_first(axes, token_axes); }

 private:
  bool is_first(const std::vector<std::string>& axes, const std::vector<std::string>& more_data) const;
};

// All communicators and channels of a rank's programs. They are made before the first action, in one order on all ranks, because
// making one is collective. Does not change while actions run.
class Links {
 public:
  explicit Links(RankPlace place = {}, int trainer = 0) : place_(std::move(place)), trainer_(trainer) {}
  virtual ~Links();
  const RankPlace& place() const { return place_; }
  // Returns which of the trainers over the programs' mesh these are of, from 1; 0 without a mesh. Trainers of one mesh share its
  // communicators.
  int trainer() const { return trainer_; }
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

 private:
  RankPlace place_;
  int trainer_;
};

}  // namespace zt
