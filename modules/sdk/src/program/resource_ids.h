// Dense numbers for the resources of a program, so that the executor finds conflicts without maps.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "zt/program/kind.h"

namespace zt {

// A resource that is used in slices has one id for each piece that no slice divides. Resources conflict if they share an id.
class ResourceIds {
 public:
  // `used`: the resources of all actions.
  explicit ResourceIds(std::span<const Resources> used);

  // Returns the ids of the resources, ascending. All must be among those given to the constructor.
  std::vector<int> of(const std::vector<Resource>& resources) const;
  // As `of`, without the ids in `except`.
  std::vector<int> of(const std::vector<Resource>& resources, const std::vector<int>& except) const;
  int size() const { return size_; }

 private:
  struct Pieces {
    int first = 0;      // id of the first piece
    int64_t count = 1;  // a multiple of the `parts` of every slice that is used
  };

  std::map<Resource, Pieces> pieces_;  // by the whole resource
  int size_ = 0;
};

}  // namespace zt
