// The flight recorder's record of one call of a communicator.
#pragma once

#include <array>
#include <cstdint>

#include "core/call.h"

namespace zt::comm {

// timed_out: the rank gave up waiting for the others.
enum class CallStage : uint64_t { queued, running, done, failed, timed_out };
constexpr int kCallStages = 5;

const char* name_of(CallStage stage);

// Plain data, in memory that other processes read. Times are those of the machine's steady clock; 0 means not yet.
struct CallRecord {
  uint64_t number = 0;  // as in Operation
  uint64_t turn = 0;
  Call call;
  CallStage stage = CallStage::queued;
  int64_t queued_ns = 0, started_ns = 0, ended_ns = 0;
  std::array<char, 40> activity{};  // current_activity() of the calling thread, truncated: "REDUCE_GRAD 3"
};

}  // namespace zt::comm
