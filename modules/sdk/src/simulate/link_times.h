// The seconds that transfers take on the links inside and between machines.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "play/player.h"
#include "zt/comm/mesh.h"
#include "zt/simulate/costs.h"

namespace zt {

// Seconds of a transfer that shares no link with another one of its ranks, and what it needs of their links.
struct LinkTime {
  double seconds = 0;
  LinkUse use = {};
};

// A machine's ranks are consecutive. They do the same at the same time, so those of them that reach other machines share its
// network cards evenly; each of them drives at most one card.
class LinkTimes {
 public:
  // Both must outlive this.
  LinkTimes(const MeshShape& mesh, const Hardware& machine) : mesh_(mesh), machine_(machine) {}

  // A collective over the group of `rank` along the axes, of which each rank sends `bytes`, as kind.h counts them. The faster one
  // of a ring, which enters a machine once, and of an exchange with doubling distances, which takes log2 W messages.
  // `is_two_level`: instead each byte is moved inside the machines, and then once between them.
  LinkTime collective(int rank, const std::vector<std::string>& axes, int64_t bytes, bool is_two_level) const;
  // Each rank of the group sends equal parts of `bytes` to all others.
  LinkTime all_to_all(int rank, const std::vector<std::string>& axes, int64_t bytes) const;
  // A message of `bytes` to the rank with index `peer` in the group of `rank`.
  LinkTime message(int rank, const std::vector<std::string>& axes, int peer, int64_t bytes) const;

 private:
  // Where the ranks of a group are, seen from one of them.
  struct Group {
    int size = 1;
    int machines = 1;
    int here = 1;      // of its ranks, on the machine of `rank`
    double cards = 1;  // of this machine, that the group has for itself
    double card = 1;   // that each of its ranks has for itself, at most 1
  };
  const Group& group(int rank, const std::vector<std::string>& axes) const;
  Group describe(int rank, const std::vector<std::string>& axes) const;
  int machine_of(int rank) const { return rank / machine_.ranks_per_machine; }
  std::vector<int> ranks_beside(int rank) const;  // of its machine, itself included
  double inside() const;                          // bytes per second
  double across(double cards) const;
  [[noreturn]] void refuse(const char* link) const;

  const MeshShape& mesh_;
  const Hardware& machine_;
  mutable std::map<std::pair<int, std::vector<std::string>>, Group> groups_;
};

}  // namespace zt
