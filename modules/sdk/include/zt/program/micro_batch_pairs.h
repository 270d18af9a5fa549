// Runs micro-batches in pairs, so that one computes while what the other exchanges is under way.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "zt/program/rank_program.h"

namespace zt {

// Returns a pass that runs micro-batches in pairs, 0 and 1, 2 and 3 and so on, of which the last stays alone if their number is
// odd. The two take turns; a turn ends after the F, B or I of a layer that exchanges tensors with other ranks
// (PositionInfo::exchanges). So the tensors of one are under way while the other computes. The values of two micro-batches are
// kept at a time. Gradients have the same bits with and without the pass. It changes evaluation, too, and nothing in a model
// without exchanges.
//
// Phase compute. apply throws Misuse if micro-batches do not run one after the other, as in a pipeline.
std::shared_ptr<Pass> make_micro_batch_pairs();

// Merges two lists, of which each keeps its order, `first` ahead. They take turns; a turn ends after an element for which
// ends_turn(element) is true.
template <class T, class EndsTurn>
std::vector<T> take_turns(const std::vector<T>& first, const std::vector<T>& second, EndsTurn ends_turn) {
  std::vector<T> merged;
  size_t next = 0, other = 0;
  const std::vector<T>*own = &first, *waiting = &second;
  while (next < own->size() || other < waiting->size()) {
    while (next < own->size()) {
      merged.push_back((*own)[next++]);
      if (ends_turn(merged.back())) break;
    }
    std::swap(own, waiting);
    std::swap(next, other);
  }
  return merged;
}

}  // namespace zt
