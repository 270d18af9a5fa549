#include "huggingface/model/merge_table.h"

#include <bit>

namespace zt::data::huggingface {

MergeTable::MergeTable(size_t merges) {
  const size_t slots = std::bit_ceil(merges * 2 + 2);
  shift_ = 64 - std::countr_zero(slots);
  merges_.resize(slots);
}

void MergeTable::add(int32_t left, int32_t right, uint32_t rank, int32_t token) {
  const uint64_t pair = pair_of(left, right);
  merges_[slot_of(pair)] = {pair, rank, token};
}

}  // namespace zt::data::huggingface
