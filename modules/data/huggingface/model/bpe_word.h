// A word while its symbols are merged.
#pragma once

#include <cstdint>
#include <vector>

#include "huggingface/model/merge_table.h"

namespace zt::data::huggingface {

// Threads: one at a time.
class BpeWord {
 public:
  // Appends a symbol.
  void add(int32_t token);
  // Applies merges until none is left: always the one of the lowest rank, of those the leftmost.
  void merge(const MergeTable& merges);
  void append_to(std::vector<int32_t>& out) const;

 private:
  static constexpr uint32_t kNoSymbol = UINT32_MAX;

  // A list: a merge removes its right symbol.
  struct Symbol {
    int32_t token;
    uint32_t previous, next;
    bool is_removed;
  };
  struct Candidate {
    uint64_t order;  // the rank, then the place of the left symbol
    int32_t token;
    bool operator<(const Candidate& other) const { return order > other.order; }  // the heap has the lowest order on top
  };

  void add_candidate(const MergeTable& merges, uint32_t left, bool is_heap);

  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace zt::data::huggingface
