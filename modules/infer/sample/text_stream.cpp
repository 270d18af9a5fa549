#include "sample/text_stream.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace zt::infer {

std::string StopTexts::add(std::string_view bytes) {
  if (found_) return {};
  held_ += bytes;
  // The one that is complete first, so that the pieces in which bytes arrive do not matter; of several, the longest.
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const bool is_first = at + stop.size() < end || (at + stop.size() == end && stop.size() > found_->size());
    if (!is_first) continue;
    end = at + stop.size();
    found_ = &stop;
  }
  size_t safe = found_ ? end - found_->size() : held_.size();
  // A stop that begins earlier may still be under way.
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > 0 && !found_; --length) {
      if (!std::string_view(stop).starts_with(std::string_view(held_).substr(held_.size() - length))) continue;
      safe = std::min(safe, held_.size() - length);
      break;
    }
  }
  std::string text = held_.substr(0, safe);
  held_.erase(0, found_ ? held_.size() : safe);
  return text;
}

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The bytes that may follow the first byte of a character at place 1, and the length of the character; 0: no first byte.
struct Lead {
  int length = 0;
  uint8_t least = 0x80, most = 0xBF;
};
Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  return {};
}

bool may_follow(const std::string& begun, uint8_t byte) {
  const Lead lead = lead_of(static_cast<uint8_t>(begun.front()));
  return begun.size() == 1 ? byte >= lead.least && byte <= lead.most : byte >= 0x80 && byte <= 0xBF;
}

}  // namespace

std::string CharacterStream::add(std::string_view bytes) {
  std::string text;
  for (const char next : bytes) {
    const auto byte = static_cast<uint8_t>(next);
    if (!held_.empty() && !may_follow(held_, byte)) {
      text += kReplacement;
      held_.clear();
    }
    if (held_.empty() && lead_of(byte).length == 0) {
      text += kReplacement;
      continue;
    }
    held_ += next;
    if (static_cast<int>(held_.size()) == lead_of(static_cast<uint8_t>(held_.front())).length) text += std::exchange(held_, {});
  }
  return text;
}

std::string CharacterStream::finish() {
  return std::exchange(held_, {}).empty() ? std::string() : std::string(kReplacement);
}

}  // namespace zt::infer
