// What ranks tell each other when they make memory together. Plain data that can be sent.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "shm/shared_memory.h"
#include "zt/base/error.h"

namespace zt::comm {

struct Offer {
  MemoryAddress address;              // of the sender's memory
  std::array<char, 512> complaint{};  // why the rank failed, truncated; empty means success

  bool is_complaint() const { return complaint[0] != 0; }
};

// Calls `attempt`. If it throws Fault, writes the text into the offer instead.
template <class Attempt>
void attempt_or_complain(Offer& offer, Attempt attempt) {
  try {
    attempt();
  } catch (const Fault& failure) {
    const std::string text = failure.what();
    std::memcpy(offer.complaint.data(), text.data(), std::min(text.size(), offer.complaint.size() - 1));
  }
}

}  // namespace zt::comm
