#include "huggingface/model/bpe_word.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::data::huggingface {

void BpeWord::add(int32_t token) {
  const auto place = static_cast<uint32_t>(symbols_.size());
  if (place == kNoSymbol) fault("cannot encode a word of more than 2^32 - 2 characters: give the text in parts");
  if (place > 0) symbols_.back().next = place;
  symbols_.push_back({token, place == 0 ? kNoSymbol : place - 1, kNoSymbol, false});
}

void BpeWord::add_candidate(const MergeTable& merges, uint32_t left, bool is_heap) {
  const uint32_t right = symbols_[left].next;
  if (right == kNoSymbol) return;
  const auto* found = merges.find(symbols_[left].token, symbols_[right].token);
  if (!found) return;
  heap_.push_back({static_cast<uint64_t>(found->rank) << 32 | left, found->token});
  if (is_heap) std::push_heap(heap_.begin(), heap_.end());
}

void BpeWord::merge(const MergeTable& merges) {
  heap_.clear();
  for (uint32_t left = 0; left + 1 < symbols_.size(); ++left) add_candidate(merges, left, false);
  std::make_heap(heap_.begin(), heap_.end());
  while (!heap_.empty()) {
    const Candidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const auto place = static_cast<uint32_t>(top.order);
    Symbol& left = symbols_[place];
    if (left.is_removed || left.next == kNoSymbol) continue;
    Symbol& right = symbols_[left.next];
    // The candidate is out of date if its symbols have changed since. As in tokenizers, only the result of the merge tells.
    const auto* now = merges.find(left.token, right.token);
    if (!now || now->token != top.token) continue;
    left.token = top.token;
    right.is_removed = true;
    left.next = right.next;
    if (left.next != kNoSymbol) symbols_[left.next].previous = place;
    if (left.previous != kNoSymbol) add_candidate(merges, left.previous, true);
    add_candidate(merges, place, true);
  }
}

void BpeWord::append_to(std::vector<int32_t>& out) const {
  for (const Symbol& symbol : symbols_) {
    if (!symbol.is_removed) out.push_back(symbol.token);
  }
}

}  // namespace zt::data::huggingface
