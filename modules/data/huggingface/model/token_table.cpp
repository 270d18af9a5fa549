#include "huggingface/model/token_table.h"

#include <algorithm>

#include "huggingface/model/byte_hash.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

TokenTable::TokenTable(const JsonValue& vocabulary, const std::string& place) : TokenTable() {
  for (const auto& [token, id] : vocabulary.items()) {
    const int32_t number = id_from(id, fmt::format("{}, '{}'", place, token));
    if (const std::string* other = token_of(number)) {
      fault("{}: the tokens '{}' and '{}' have the same id {}: each id must have one token", place, *other, token, number);
    }
    add(token, number);
  }
}

size_t TokenTable::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_bytes(token) & mask;
  while (slots_[slot] != 0 && tokens_[slots_[slot] - 1] != token) slot = (slot + 1) & mask;
  return slot;
}

void TokenTable::grow() {
  slots_.assign(slots_.size() * 2, 0);
  for (size_t i = 0; i < tokens_.size(); ++i) slots_[slot_of(tokens_[i])] = static_cast<uint32_t>(i + 1);
}

void TokenTable::add(std::string token, int32_t id) {
  if (tokens_.size() * 2 >= slots_.size()) grow();
  const size_t slot = slot_of(token);
  longest_ = std::max(longest_, token.size());
  if (slots_[slot] == 0) {
    tokens_.push_back(std::move(token));
    ids_.push_back(id);
    slots_[slot] = static_cast<uint32_t>(tokens_.size());
  } else {
    ids_[slots_[slot] - 1] = id;
  }
  const auto place = static_cast<size_t>(id);
  if (place >= by_id_.size()) by_id_.resize(place + 1, 0);
  by_id_[place] = slots_[slot];
}

std::optional<int32_t> TokenTable::id_of(std::string_view token) const {
  const uint32_t entry = slots_[slot_of(token)];
  return entry == 0 ? std::nullopt : std::optional(ids_[entry - 1]);
}

const std::string* TokenTable::token_of(int64_t id) const {
  if (id < 0 || id >= end_id()) return nullptr;
  const uint32_t entry = by_id_[static_cast<size_t>(id)];
  return entry == 0 ? nullptr : &tokens_[entry - 1];
}

}  // namespace zt::data::huggingface
