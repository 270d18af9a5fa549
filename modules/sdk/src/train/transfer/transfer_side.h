// What the ranks hold of the tensors of one trainer.
#pragma once

#include <string>
#include <vector>

#include "train/store/store.h"
#include "zt/reshard/region.h"

namespace zt {

// Which of a parameter's values a rank has: those that layers see, or those of masters that have memory of their own.
enum class ValuesOf : uint8_t { layers, master };

// Tensors and parameters are numbered as in Store. Elements are those of the whole tensor; of a packed parameter they are bytes
// of what the rank holds, in one dimension. Immutable. Threads: the rank's thread only.
class TransferSide {
 public:
  // A trainer without a mesh has all on each of the `ranks` ranks.
  TransferSide(const Store& store, int ranks);

  const Store& store() const { return store_; }
  // Returns what a rank has, in the order in which it lies there; a region without elements if it has nothing.
  Region held(int tensor, ValuesOf values, int rank) const;
  // Returns the whole bytes of a packed parameter on a rank that has a part of them: one dimension.
  std::vector<int64_t> packed_shape(int param, int rank) const;
  std::vector<Box> boxes(int param, int rank) const;
  // Returns whether ranks have masters in memory of their own.
  bool has_master(int param) const;
  // Returns whether a rank holds only the part that it owns of what layers see, or may write only to that.
  bool has_owned_part_only(int param, int rank) const;
  at::ScalarType dtype(int tensor, ValuesOf values) const;

 private:
  struct RankLayout {
    Coord coord;
    RankUnits held;
    std::vector<bool> runs;  // by position
  };
  const RankLayout& layout(int rank) const { return layouts_[layouts_.size() == 1 ? 0 : static_cast<size_t>(rank)]; }
  bool has_slot(const RankLayout& of, int unit) const;

  const Store& store_;
  std::vector<RankLayout> layouts_;  // by rank; one of all ranks without a mesh
};

}  // namespace zt
